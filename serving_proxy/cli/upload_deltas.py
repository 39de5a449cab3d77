# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy upload-deltas`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from serving_proxy.cli.app import app, errors, guarded
from serving_proxy.errors import UnavailableError

_PERIOD_S = 0.2
_PAUSE_S = 2.0

_HELP = """Keep a store equal to a folder to which a trainer writes deltas, until it is interrupted.

It needs no proxy. Deltas that the folder has no longer are removed from the store.

**Examples**

- `serving-proxy upload-deltas /deltas/ranking s3://models/deltas/ranking`
- `serving-proxy upload-deltas /deltas/ranking s3://models/deltas/ranking --once`
"""


@app.command("upload-deltas", help=_HELP)
@guarded
def upload_deltas_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", show_default=False, help="Folder of a timeline.")],
    url: Annotated[str, typer.Argument(metavar="URL", show_default=False, help="Its place in a store.")],
    *,
    once: Annotated[bool, typer.Option("--once", metavar="", help="Upload what is there, and end.")] = False,
) -> None:
    from serving_proxy.artifacts.timelines import TimelineUpload
    from serving_proxy.artifacts.urls import parse_url

    upload = TimelineUpload(folder, parse_url(url, "URL"))
    silent = False
    while True:
        try:
            count = upload.step()
            silent = False
        except UnavailableError as error:
            if once:
                raise
            if not silent:
                errors.print(f"{error}; tried again until it answers", markup=False, highlight=False, soft_wrap=True)
            silent = True
            time.sleep(_PAUSE_S)
            continue
        if count:
            typer.echo(f"{count} {'delta' if count == 1 else 'deltas'} uploaded to {url}")
        if once:
            return
        time.sleep(_PERIOD_S)
