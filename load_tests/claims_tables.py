# SPDX-License-Identifier: Apache-2.0
"""Render the table of claims on a console and in the documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["long_table", "print_table", "replace_between_marks", "short_table"]

Row = dict[str, Any]

#: Part of the CPU time that other processes may use without invalidating a measurement.
_BUSY = 0.1


def _where(row: Row) -> str:
    if "commit" not in row:
        return ""
    return f"{(row['commit'] or 'none')[:7]}{'*' if row['modified'] else ''} {row['time'][:10]}"


def _short(row: Row) -> str:
    busy = row.get("busy_before", 0.0) > _BUSY
    return str(row.get("short", "not measured yet")) + (" (on a busy machine)" if busy else "")


def machines(rows: Iterable[Row]) -> str:
    """Return the machines of the measurements; cloud CPUs are often named only by their features."""
    found = sorted(
        {
            f"{row['cpu']} ({', '.join(row['cpu_features'])}), {row['cpus']} CPUs, "
            + ", ".join(f"{name} {version}" for name, version in row["versions"].items() if version)
            for row in rows
            if "cpu" in row
        }
    )
    return "; ".join(found) or "none yet"


def print_table(console: Console, rows: Sequence[Row]) -> None:
    """Print the table."""
    table = Table(title="Published claims, and what we measured", show_lines=True)
    table.add_column("claim, and the command that measures it", width=28)
    table.add_column("published", width=11)
    table.add_column("measured")
    table.add_column("commit, date", width=10)
    for row in rows:
        text = escape(row["text"]) if "text" in row else f"[yellow]{escape(row['missing'])}[/]"
        table.add_row(f"{escape(row['claim'])}\n[dim]{escape(row['command'])}[/]", row["published"], text, _where(row))
    console.print(table)
    console.print(f"Machine: {machines(rows)}. * files differed from the commit.", soft_wrap=True)


def _markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def short_table(rows: Sequence[Row]) -> str:
    """Return the table of the documents: a few words for each claim."""
    body = [[row["claim"], row["published"], _short(row), f"`{row['command']}`", _where(row)] for row in rows]
    return _markdown(["claim", "published", "measured here", "command", "commit, date"], body)


def long_table(rows: Sequence[Row]) -> str:
    """Return the table with every figure below it, and the machine, for docs/claims.md."""
    figures = [
        f"- **{row['claim']}**: " + "\n  - ".join(re.split("[;.] ", str(row.get("text", row.get("missing", "")))))
        for row in rows
    ]
    others = ", ".join(f"{row['claim']} {row['busy_before']:.0%}" for row in rows if "busy_before" in row)
    return "\n\n".join(
        (
            short_table(rows),
            "\n".join(figures),
            f"Machine: {machines(rows)}.",
            f"Share of the CPUs' time that other programs used before the measurement: {others}.",
            "An asterisk after a commit: files differed from it.",
        )
    )


def replace_between_marks(path: Path, text: str) -> None:
    """Replace the text between the marks `<!-- claims -->` and `<!-- /claims -->` of a document.

    Raises
    ------
    ValueError
        If the document does not contain exactly one pair of marks.
    """
    old = path.read_text(encoding="utf-8")
    new, count = re.subn(
        r"(?<=<!-- claims -->\n).*?(?=\n<!-- /claims -->)", lambda _: f"\n{text}\n", old, flags=re.DOTALL
    )
    if count != 1:
        raise ValueError(f"{path}: {count} pairs of marks of claims, expected one")
    path.write_text(new, encoding="utf-8")
