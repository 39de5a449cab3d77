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

_HELP = """Record a sample of a model's requests, list the recorded files, or merge them into one file.

The files contain the requests as clients sent them. With `--engine agents` or `ray` they are on the machines, whose
agents list, send and delete them; the merged file is on the proxy's machine. They can be used for warm-up
(`deploy --warmup last`), and replayed by `graph-tools verify --requests`.

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
        typer.Option(
            metavar="PERCENT", min=0, max=100, show_default=False, help="Percentage of the requests to record."
        ),
    ] = None,
    max_mb: Annotated[float, typer.Option(metavar="MB", min=0.01, help="Largest size of a file.")] = 16.0,
    max_files: Annotated[
        int, typer.Option(metavar="N", min=2, max=1000, help="Number of files that a host keeps.")
    ] = 8,
    off: Annotated[bool, typer.Option("--off", metavar="", help="Stop recording.")] = False,
    merge: Annotated[
        bool, typer.Option("--merge", metavar="", help="Merge the newest requests into one file, and print its path.")
    ] = False,
    delete: Annotated[bool, typer.Option("--delete", metavar="", help="Delete the recorded files.")] = False,
) -> None:
    if sample is not None and off:
        raise InvalidError("--sample and --off: given together, expected one of them")
    if merge and delete:
        raise InvalidError("--merge and --delete: given together, expected one of them")
    if sample is not None or off:
        client.set_request_log(name, None if off else sample, int(max_mb * 1024 * 1024), max_files)
    if delete:
        client.delete_request_log(name)
    found = client.merge_request_log(name) if merge else client.request_log(name)
    if as_json or not merge:
        show(found, as_json, lambda _: render_request_log(name, found))
        return
    remark(f"{found['records']} requests, {found['bytes']} bytes")
    for reason in found["missing"].values():
        remark(f"without those of {reason}")
    typer.echo(found["path"])
