# SPDX-License-Identifier: Apache-2.0
"""Format tables and fit them into the terminal."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

Kind = Literal["name", "text", "left", "right"]
"""`name` wraps anywhere, `text` between words; `left` and `right` never wrap."""

Columns = dict[str, Kind]
_NAME_CELLS = 24
_TEXT_CELLS = 28
_BETWEEN = 2


def load_tensorflow() -> None:
    """Load TensorFlow without the messages about oneDNN that it prints before they can be turned off."""
    if "tensorflow" in sys.modules:
        return
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        importlib.import_module("tensorflow")
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def console() -> Console:
    """Return a console as wide as the terminal; for a pipe or a file, 140 columns wide."""
    made = Console()
    return made if made.is_terminal else Console(width=140)


def table(
    title: str, columns: Columns, rows: Iterable[Sequence[str]], width: int, optional: Sequence[str] = ()
) -> Table:
    """Return a table that is no wider than the terminal.

    Parameters
    ----------
    title : str
    columns : mapping of header to Kind
    rows : iterable of sequence of str
        Cells, with markup.
    width : int [cells]
        Width of the terminal.
    optional : sequence of str
        Columns that are left out, in this order, while the rest does not fit. Columns without content are always left
        out.
    """
    cells = [list(row) for row in rows]
    shown = [name for place, name in enumerate(columns) if any(row[place] for row in cells)]
    natural = {
        name: max([cell_len(name), *(cell_len(Text.from_markup(row[place]).plain) for row in cells)])
        for place, name in enumerate(columns)
    }
    least = {"name": _NAME_CELLS, "text": _TEXT_CELLS}
    taken = {name: min(natural[name], least.get(columns[name], natural[name])) for name in shown}
    for name in optional:
        if name in taken and sum(taken.values()) + _BETWEEN * (len(taken) - 1) > width:
            del taken[name]
    places = [place for place, name in enumerate(columns) if name in taken]
    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, _BETWEEN - 1, 0, 0),
        show_edge=False,
    )
    for name in taken:
        kind = columns[name]
        made.add_column(
            name,
            justify="right" if kind == "right" else "left",
            overflow="fold",
            no_wrap=kind in {"left", "right"},
        )
    for row in cells:
        made.add_row(*(row[place] for place in places))
    return made


def show(screen: Console, made: Table) -> None:
    """Print a table and an empty line after it; print nothing for a table without rows."""
    if made.row_count:
        screen.print(made)
        screen.print()
