# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy clean-store`."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from serving_proxy.cli.app import app, guarded
from serving_proxy.cli.options import print_json, seconds
from serving_proxy.errors import InvalidError

if TYPE_CHECKING:
    from serving_proxy.artifacts.cleaning import Cleaned

_LEAST_AGE_S = 3600.0

_HELP = """Remove files of a model store that no artifact in it names any more.

Without --remove it only says what they are. With it, each run marks such files, and removes those that an earlier run
marked more than --age ago, so run it regularly. Proxies may upload meanwhile. It needs no proxy.

**Examples**

- `serving-proxy clean-store s3://models`
- `serving-proxy clean-store s3://models --remove --age 48h`
"""


@app.command("clean-store", help=_HELP)
@guarded
def clean_store_command(
    url: Annotated[str, typer.Argument(metavar="URL", show_default=False, help="The --model-store of the proxies.")],
    *,
    remove: Annotated[bool, typer.Option("--remove", metavar="", help="Mark and remove files.")] = False,
    age: Annotated[
        str, typer.Option(metavar="TIME", help="How long files stay marked: longer than any upload takes.")
    ] = "24h",
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")] = False,
) -> None:
    from serving_proxy.artifacts.cleaning import clean_store
    from serving_proxy.artifacts.urls import parse_url

    now, age_s = time.time(), seconds(age, "--age")
    if age_s < _LEAST_AGE_S:
        raise InvalidError(f"--age {age}: expected 1h at least, because an upload that runs may need the files")
    found = clean_store(parse_url(url, "URL"), age_s, now, remove)
    if as_json:
        print_json(asdict(found))
    else:
        _print(found, now)


def _print(found: Cleaned, now: float) -> None:
    for each in found.unused:
        if each.is_removed:
            state = "removed"
        elif each.since is None:
            state = "not needed"
        else:
            state = f"not needed, marked {(now - each.since) / 3600:.1f} hours ago"
        typer.echo(f"{each.sha256}  {each.bytes / 1e6:,.1f} MB  {state}")
    removed = sum(each.bytes for each in found.unused if each.is_removed)
    left = sum(each.bytes for each in found.unused if not each.is_removed)
    typer.echo(
        f"{found.artifacts} artifacts need {found.used_bytes / 1e6:,.1f} MB; "
        f"removed {removed / 1e6:,.1f} MB; not needed {left / 1e6:,.1f} MB"
    )
