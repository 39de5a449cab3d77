# SPDX-License-Identifier: Apache-2.0
"""Print a verify report in the terminal, from its JSON data only."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from graph_tools.cli.terminal import Columns, show, table
from graph_tools.cli.units import asked_text, bytes_text, difference_text, settings_text, weak_text

_MOST = 12


def render_verify(report: dict[str, Any], console: Console) -> None:
    """Print a verify report."""
    for side in ("a", "b"):
        one = report[side]
        how = f", run by {one['how']}" if one["how"] else ""
        text = f"[bold]{side}[/] {escape(one['path'])}: {one['kind']}, {bytes_text(one['bytes'])}{how}"
        console.print(text, highlight=False, soft_wrap=True)
    console.print()
    show(console, _outputs(report["outputs"], console.width))
    show(console, _tables(report["tables"], console.width))
    for line in _notes(report):
        console.print(line, highlight=False, soft_wrap=True)


def _outputs(outputs: list[dict[str, Any]], width: int) -> Table:
    several = len({output["signature"] for output in outputs}) > 1
    rows = []
    for one in outputs:
        ranked = one["rank_correlation"]
        rows.append(
            [
                escape(f"{one['signature']}: {one['name']}" if several else one["name"]),
                f"{one['elements']:,}",
                f"[red]{one['beyond']:,}[/]" if one["beyond"] else "0",
                f"{one['unsettled']:,}" if one["unsettled"] else "",
                "bit-exact" if one["bit_exact"] else f"{float(one['max_abs_difference']):.2g}",
                "" if one["bit_exact"] else f"{float(one['max_rel_difference']):.2g}",
                "" if ranked is None else f"{ranked:.6f}",
                f"{one['nan_a']} / {one['nan_b']}" if one["nan_a"] or one["nan_b"] else "",
                "" if one["auc_a"] is None else f"{one['auc_a']:.5f} / {one['auc_b']:.5f}",
            ]
        )
    columns: Columns = {"output": "name"}
    numbers = ("elements", "beyond", "unsettled", "max |a-b|", "max rel", "rank corr.", "NaN a/b", "AUC a/b")
    columns |= dict.fromkeys(numbers, "right")
    return table("Outputs", columns, rows, width, optional=("rank corr.", "max rel"))


def _tables(tables: list[dict[str, Any]], width: int) -> Table:
    rows = []
    for one in sorted(tables, key=lambda one: (one["equal"], -one["rows"]))[:_MOST]:
        numbers = [f"{one[key]:,}" for key in ("rows", "stored", "absent", "beyond")]
        rows.append([escape(one["name"]), *numbers, f"{float(one['max_abs_difference']):.2g}"])
    if len(tables) > _MOST:
        rows.append([f"and {len(tables) - _MOST} more", "", "", "", "", ""])
    columns: Columns = {"table": "name"}
    columns |= dict.fromkeys(("rows", "stored", "absent", "beyond", "max |a-b|"), "right")
    return table("Tables, row by row", columns, rows, width)


def _notes(report: dict[str, Any]) -> list[str]:
    notes = [f"[yellow]not compared[/] {escape(text)}" for text in report["not_compared"][:_MOST]]
    refused = [one for one in report["refused"] if one["equal"] and not one["empty"]]
    for (signature, error), count in Counter((one["signature"], one["a"]) for one in refused).most_common(_MOST):
        times = f"{count} requests" if count > 1 else "1 request"
        notes.append(f"refused by both: {times} of '{escape(signature)}', {escape(error)}")
    notes += [f"[red]differs[/] {escape(text)}" for text in report["reasons"][:_MOST]]
    notes += [f"[yellow]warning[/] {escape(text)}" for text in weak_text(report)]
    if len(report["reasons"]) > _MOST:
        notes.append(f"[red]differs[/] and {len(report['reasons']) - _MOST} more; the JSON report has all")
    tolerance = f"{report['tolerance']['absolute']:g} + {report['tolerance']['relative']:g} x |score|"
    asked = f"{asked_text(report)} in {report['seconds']:.1f} s"
    verdict = "[green]equal[/]" if report["passed"] else "[bold red]not equal[/]"
    if report["passed"]:
        asked += f": {difference_text(report)}"
    notes.append(f"{verdict} {asked}, tolerance {tolerance}, {settings_text(report)}")
    return notes
