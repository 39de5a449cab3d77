# SPDX-License-Identifier: Apache-2.0
"""`graph-tools inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graph_tools.cli.app import verb
from graph_tools.cli.options import Checkpoint, Json, OpLibrary
from graph_tools.cli.output import OutputOptions
from graph_tools.cli.progress import steps
from graph_tools.cli.render_inspect import render_inspect
from graph_tools.cli.terminal import console

_HELP = """Show what exported models contain, side by side, and which parts serving does not need.

**Examples**

- `graph-tools inspect export/7`
- `graph-tools inspect export/7 cut/7`
- `graph-tools inspect export/7 --json`
"""


@verb("inspect", _HELP)
def inspect_command(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL", help="SavedModel folders or GraphDef files.")],
    checkpoint: Checkpoint = None,
    op_library: OpLibrary = None,
    as_json: Json = False,
) -> int:
    from graph_tools.verbs.inspect import inspect

    with steps() as progress:
        progress.begin("Reading " + ", ".join(map(str, models)))
        data = inspect(*models, checkpoint=checkpoint, op_library=op_library).to_json()
    OutputOptions(as_json=as_json).deliver(data)
    if not as_json:
        render_inspect(data, console())
    return 0
