# SPDX-License-Identifier: Apache-2.0
"""`graph-tools diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graph_tools.cli.app import verb
from graph_tools.cli.options import Json, OpLibrary
from graph_tools.cli.output import OutputOptions
from graph_tools.cli.progress import steps
from graph_tools.cli.render_diff import render_diff
from graph_tools.cli.terminal import console

_HELP = """Show how the contents of two exported models differ: signatures, ops, variables, tables, assets, bytes.

`graph-tools verify` compares their outputs.

**Examples**

- `graph-tools diff export/7 cut/7`
- `graph-tools diff export/6 export/7 --json`
"""


@verb("diff", _HELP)
def diff_command(
    a: Annotated[Path, typer.Argument(metavar="A", help="SavedModel folder or GraphDef file.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="SavedModel folder or GraphDef file to compare with A.")],
    op_library: OpLibrary = None,
    as_json: Json = False,
) -> int:
    from graph_tools.verbs.diff import diff

    with steps() as progress:
        progress.begin(f"Reading {a} and {b}")
        data = diff(a, b, op_library=op_library).to_json()
    OutputOptions(as_json=as_json).deliver(data)
    if not as_json:
        render_diff(data, console())
    return 0
