# SPDX-License-Identifier: Apache-2.0
"""The terminal's view of a diff report; everything comes from the JSON data."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from graph_tools.cli.units import bytes_text

_MOST = 20


def render_diff(report: dict[str, Any], console: Console) -> None:
    """Print a diff report."""
    a, b = report["a"], report["b"]
    console.print(f"[bold]a[/] {escape(a['path'])}\n[bold]b[/] {escape(b['path'])}", highlight=False)
    console.print(_sides(a, b))
    for kind, title in (
        ("signatures", "Signatures"),
        ("variables", "Variables"),
        ("tables", "Tables"),
        ("assets", "Assets"),
    ):
        if report[kind]:
            console.print(_changes(title, report[kind]))
    if report["ops"]:
        console.print(_ops(report["ops"]))
    if report["equal"]:
        console.print("[green]equal[/] in signatures, ops, variables, tables and assets")
    else:
        same = report["same_interface"]
        console.print("[green]signatures are equal[/]" if same else "[yellow]signatures differ[/]")


def _table(title: str, columns: dict[str, str]) -> Table:
    table = Table(title=title, title_justify="left")
    for name, justify in columns.items():
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    return table


def _sides(a: dict[str, Any], b: dict[str, Any]) -> Table:
    table = _table("Models", {"": "left", "a": "right", "b": "right", "b / a": "right"})
    table.add_row("kind", a["kind"], b["kind"], "")
    for key in ("bytes", "variable_bytes", "table_bytes", "nodes", "functions", "variables", "tables", "assets"):
        is_bytes = key.endswith("bytes")
        texts = [bytes_text(side[key]) if is_bytes else f"{side[key]:,}" for side in (a, b)]
        table.add_row(key.replace("_", " "), *texts, f"{b[key] / a[key]:.3f}" if a[key] else "")
    return table


def _changes(title: str, changes: list[dict[str, Any]]) -> Table:
    table = _table(title, {"name": "left", "a": "left", "b": "left"})
    for one in changes[:_MOST]:
        cells = ["[dim]not there[/]" if one[side] is None else escape(one[side]) for side in ("a", "b")]
        table.add_row(escape(one["name"]), *cells)
    if len(changes) > _MOST:
        table.add_row(f"and {len(changes) - _MOST} more", "", "")
    return table


def _ops(ops: list[dict[str, Any]]) -> Table:
    table = _table("Ops", {"op": "left", "a": "right", "b": "right", "change": "right"})
    for one in sorted(ops, key=lambda one: -abs(one["b"] - one["a"]))[:_MOST]:
        table.add_row(one["op"], f"{one['a']:,}", f"{one['b']:,}", f"{one['b'] - one['a']:+,}")
    if len(ops) > _MOST:
        table.add_row(f"and {len(ops) - _MOST} more", "", "", "")
    return table
