# SPDX-License-Identifier: Apache-2.0
"""How tables look, and how wide they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table

Justify = Literal["left", "right"]


def console() -> Console:
    """Make a console as wide as the terminal; in a pipe or a file, as wide as the widest table."""
    made = Console()
    return made if made.is_terminal else Console(width=140)


def table(title: str, columns: Mapping[str, Justify]) -> Table:
    """Make a table; numbers stand right and are never broken, texts stand left and are folded."""
    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, justify in columns.items():
        made.add_column(name, justify=justify, overflow="fold", no_wrap=justify == "right")
    return made
