# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy log`."""

from __future__ import annotations

from typing import Annotated

import typer

from serving_proxy.cli.app import remark
from serving_proxy.cli.commands import proxy_command, show
from serving_proxy.cli.options import Name
from serving_proxy.cli.rendering import render_request_log
from serving_proxy.client import Client
from serving_proxy.errors import InvalidError

_HELP = """Write down a sample of a model's requests, show what there is, or put it into one file.

The files hold what clients sent. They are warm-up files (`deploy --warmup last`), and `graph-tools verify --requests`
asks them again.

**Examples**

- `serving-proxy log ranking --sample 1`
- `serving-proxy log ranking`
- `serving-proxy log ranking --merge`
- `serving-proxy log ranking --off --delete`
"""


@proxy_command("log", _HELP)
def log_command(
    *,
    client: Client,
    as_json: bool,
    name: Name,
    sample: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", min=0, max=100, show_default=False, help="Share of the requests."),
    ] = None,
    max_mb: Annotated[float, typer.Option(metavar="MB", min=0.01, help="A file is no larger.")] = 16.0,
    max_files: Annotated[int, typer.Option(metavar="N", min=2, max=1000, help="A host keeps so many.")] = 8,
    off: Annotated[bool, typer.Option("--off", metavar="", help="Write nothing down any more.")] = False,
    merge: Annotated[
        bool, typer.Option("--merge", metavar="", help="Put the newest requests into one file, and print its path.")
    ] = False,
    delete: Annotated[bool, typer.Option("--delete", metavar="", help="Remove the files.")] = False,
) -> None:
    if sample is not None and off:
        raise InvalidError("--sample, --off: both, expected one of them")
    if merge and delete:
        raise InvalidError("--merge, --delete: both, expected one of them")
    if sample is not None or off:
        client.set_request_log(name, None if off else sample, int(max_mb * 1024 * 1024), max_files)
    if delete:
        client.delete_request_log(name)
    if merge and not as_json:
        merged = client.merge_request_log(name)
        remark(f"{merged['records']} requests, {merged['bytes']} bytes")
        typer.echo(merged["path"])
    else:
        found = client.merge_request_log(name) if merge else client.request_log(name)
        show(found, as_json, lambda _: render_request_log(name, found))
