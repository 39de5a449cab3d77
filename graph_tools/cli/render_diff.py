# SPDX-License-Identifier: Apache-2.0
"""Print a diff report in the terminal, from its JSON data only."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from graph_tools.cli.terminal import Columns, show, table
from graph_tools.cli.units import bytes_text

_MOST = 20


def render_diff(report: dict[str, Any], console: Console) -> None:
    """Print a diff report."""
    a, b = report["a"], report["b"]
    for name, side in (("a", a), ("b", b)):
        console.print(f"[bold]{name}[/] {escape(side['path'])}", highlight=False, soft_wrap=True)
    console.print()
    show(console, _sides(a, b, console.width))
    for kind in ("signatures", "variables", "tables", "assets"):
        show(console, _changes(kind.capitalize(), report[kind], console.width))
    show(console, _ops(report["ops"], console.width))
    if report["equal"]:
        console.print("[green]equal[/] in signatures, ops, variables, tables and assets")
    else:
        same = report["same_interface"]
        console.print("[green]signatures are equal[/]" if same else "[yellow]signatures differ[/]")


def _sides(a: dict[str, Any], b: dict[str, Any], width: int) -> Table:
    rows = [["kind", a["kind"], b["kind"], ""]]
    for key in ("bytes", "variable_bytes", "table_bytes", "nodes", "functions", "variables", "tables", "assets"):
        is_bytes = key.endswith("bytes")
        texts = [bytes_text(side[key]) if is_bytes else f"{side[key]:,}" for side in (a, b)]
        rows.append([key.replace("_", " "), *texts, f"{b[key] / a[key]:.3f}" if a[key] else ""])
    columns: Columns = {"": "left", "a": "right", "b": "right", "b / a": "right"}
    return table("Models", columns, rows, width)


def _changes(title: str, changes: list[dict[str, Any]], width: int) -> Table:
    rows = []
    for change in changes[:_MOST]:
        cells = ["[dim]not there[/]" if change[side] is None else escape(change[side]) for side in ("a", "b")]
        rows.append([escape(change["name"]), *cells])
    if len(changes) > _MOST:
        rows.append([f"and {len(changes) - _MOST} more", "", ""])
    return table(title, {"name": "name", "a": "text", "b": "text"}, rows, width)


def _ops(ops: list[dict[str, Any]], width: int) -> Table:
    rows = [
        [op["op"], f"{op['a']:,}", f"{op['b']:,}", f"{op['b'] - op['a']:+,}"]
        for op in sorted(ops, key=lambda op: -abs(op["b"] - op["a"]))[:_MOST]
    ]
    if len(ops) > _MOST:
        rows.append([f"and {len(ops) - _MOST} more", "", "", ""])
    return table("Ops", {"op": "name", "a": "right", "b": "right", "change": "right"}, rows, width)
