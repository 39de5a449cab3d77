# SPDX-License-Identifier: Apache-2.0
"""Define the options that `fuse` and `optimize` share: passes, precision, library and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from graph_tools.options import PRECISIONS


def _list_passes(wanted: bool) -> None:
    if wanted:
        from graph_tools.cli.render_fuse import render_passes
        from graph_tools.cli.terminal import console
        from graph_tools.passes.cut import cutting_pass_names
        from graph_tools.passes.fuse import fusing_pass_names

        render_passes(fusing_pass_names() | cutting_pass_names(), console())
        raise typer.Exit


def _list_cut_passes(wanted: bool) -> None:
    if wanted:
        from graph_tools.cli.render_fuse import render_passes
        from graph_tools.cli.terminal import console
        from graph_tools.passes.cut import cutting_pass_names

        render_passes(cutting_pass_names(), console())
        raise typer.Exit


Precision = Annotated[
    str,
    typer.Option(
        metavar="|".join(PRECISIONS),
        help="Of dense layers. auto: bf16 if AUC or rank correlation lose at most 0.001 here, and the CPU can. A "
        "model that was forced to bf16 does not load where the CPU cannot.",
    ),
]
SkipPass = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Leave out this pass; repeatable.", show_default=False)
]
ListPasses = Annotated[
    bool,
    typer.Option("--list-passes", metavar="", callback=_list_passes, is_eager=True, help="Print the passes and exit."),
]
ListCutPasses = Annotated[
    bool,
    typer.Option(
        "--list-passes", metavar="", callback=_list_cut_passes, is_eager=True, help="Print the passes and exit."
    ),
]
Explain = Annotated[
    bool,
    typer.Option(
        "--explain",
        metavar="",
        help="Print each fused op, each site left alone, with why, and the time of what is not fused.",
    ),
]
TableStore = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        show_default=False,
        help="Folder with the table files of all artifacts, which are linked to: equal tables are there once.",
    ),
]
UserInputs = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...",
        show_default=False,
        help="Inputs that are the user's, where rows are items: their side is computed once for a request. "
        "Patterns are allowed: 'user_*'.",
    ),
]


def names(text: str | None) -> tuple[str, ...]:
    """Parse `A,B`."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def show(data: dict[str, Any], explain: bool) -> None:
    """Print a fuse report as tables."""
    from graph_tools.cli.render_fuse import render_fuse
    from graph_tools.cli.terminal import console

    render_fuse(data, console(), explain)
