# SPDX-License-Identifier: Apache-2.0
"""Options that several verbs have, and how repeatable ones are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graph_tools.errors import UsageError

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        metavar="PREFIX", help="Take the weights from this checkpoint; or a folder with a system's table files."
    ),
]


def assignments(values: list[str] | None, option: str) -> dict[str, str]:
    """Read `NAME=VALUE` options.

    Raises
    ------
    UsageError
        One has no `=`, no name, or names what another named.
    """
    found: dict[str, str] = {}
    for text in values or ():
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise UsageError(f"{option} {text}: expected NAME=VALUE")
        if name in found:
            raise UsageError(f"{option} {text}: '{name}' is given twice, expected once")
        found[name] = value
    return found
