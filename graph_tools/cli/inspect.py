# SPDX-License-Identifier: Apache-2.0
"""`graph-tools inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graph_tools.cli.app import app, guarded
from graph_tools.cli.options import Checkpoint, Json, OpLibrary, deliver
from graph_tools.cli.progress import steps
from graph_tools.cli.render_inspect import render_inspect
from graph_tools.cli.terminal import console

_HELP = """Show what exported models hold, side by side, and what of it serving does not need.

**Examples**

- `graph-tools inspect export/7`
- `graph-tools inspect export/7 cut/7`
- `graph-tools inspect export/7 --json`
"""


@app.command(name="inspect", help=_HELP)
@guarded
def inspect_command(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL", help="SavedModel folders or GraphDef files.")],
    checkpoint: Checkpoint = None,
    op_library: OpLibrary = None,
    as_json: Json = False,
) -> int:
    from graph_tools.verbs.inspect import inspect

    with steps() as told:
        told.begin("Reading " + ", ".join(map(str, models)))
        data = inspect(*models, checkpoint=checkpoint, op_library=op_library).to_json()
    deliver(data, None, as_json)
    if not as_json:
        render_inspect(data, console())
    return 0
