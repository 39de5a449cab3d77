# SPDX-License-Identifier: Apache-2.0
"""Options that several verbs have, and how repeatable ones are read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from graph_tools.errors import UsageError
from graph_tools.staging import check_parent

# The empty metavar: newer versions of typer show a flag's type, as if it took a value.
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON instead of tables.")]
Report = Annotated[
    Path | None,
    typer.Option(metavar="FILE.json", show_default=False, help="Write the report as JSON to this file as well."),
]
MemoryLimit = Annotated[
    float, typer.Option(metavar="GB", help="Memory for tables; larger ones are streamed, row by row.")
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        metavar="PREFIX",
        show_default=False,
        help="Take the weights from this checkpoint, or from a folder with a system's table files.",
    ),
]


def memory_bytes(gigabytes: float) -> int:
    """Read `--memory-limit`.

    Raises
    ------
    UsageError
        It is less than a conversion needs, or no number.
    """
    if not 0.1 <= gigabytes < math.inf:
        raise UsageError(f"--memory-limit: {gigabytes}, expected at least 0.1 GB")
    return int(gigabytes * 1e9)


def check_report(path: Path | None) -> None:
    """Raise `UsageError`, before any work is done, if a report cannot be written to `path`."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"--report {path}: a folder, expected a file")
    check_parent(path, f"--report {path}")


def deliver(data: dict[str, Any], path: Path | None, as_json: bool) -> None:
    """Write a report to its file, and to stdout with `--json`."""
    from graph_tools.report import to_text, write_json

    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(data, path)
    if as_json:
        typer.echo(to_text(data), nl=False)


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
            raise UsageError(f"{option}: '{text}', expected NAME=VALUE")
        if name in found:
            raise UsageError(f"{option}: '{name}' is given twice, expected once")
        found[name] = value
    return found
