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
        model = report[side]
        how = f", run by {model['how']}" if model["how"] else ""
        text = f"[bold]{side}[/] {escape(model['path'])}: {model['kind']}, {bytes_text(model['bytes'])}{how}"
        console.print(text, highlight=False, soft_wrap=True)
    console.print()
    show(console, _outputs(report["outputs"], console.width))
    show(console, _tables(report["tables"], console.width))
    for line in _notes(report):
        console.print(line, highlight=False, soft_wrap=True)


def _outputs(outputs: list[dict[str, Any]], width: int) -> Table:
    several = len({output["signature"] for output in outputs}) > 1
    rows = []
    for output in outputs:
        ranked = output["rank_correlation"]
        rows.append(
            [
                escape(f"{output['signature']}: {output['name']}" if several else output["name"]),
                f"{output['elements']:,}",
                f"[red]{output['beyond']:,}[/]" if output["beyond"] else "0",
                f"{output['unsettled']:,}" if output["unsettled"] else "",
                "bit-exact" if output["bit_exact"] else f"{float(output['max_abs_difference']):.2g}",
                "" if output["bit_exact"] else f"{float(output['max_rel_difference']):.2g}",
                "" if ranked is None else f"{ranked:.6f}",
                f"{output['nan_a']} / {output['nan_b']}" if output["nan_a"] or output["nan_b"] else "",
                "" if output["auc_a"] is None else f"{output['auc_a']:.5f} / {output['auc_b']:.5f}",
            ]
        )
    columns: Columns = {"output": "name"}
    numbers = ("elements", "beyond", "unsettled", "max |a-b|", "max rel", "rank corr.", "NaN a/b", "AUC a/b")
    columns |= dict.fromkeys(numbers, "right")
    return table("Outputs", columns, rows, width, optional=("rank corr.", "max rel"))


def _tables(tables: list[dict[str, Any]], width: int) -> Table:
    rows = []
    for compared in sorted(tables, key=lambda compared: (compared["equal"], -compared["rows"]))[:_MOST]:
        numbers = [f"{compared[key]:,}" for key in ("rows", "stored", "absent", "beyond")]
        rows.append([escape(compared["name"]), *numbers, f"{float(compared['max_abs_difference']):.2g}"])
    if len(tables) > _MOST:
        rows.append([f"and {len(tables) - _MOST} more", "", "", "", "", ""])
    columns: Columns = {"table": "name"}
    columns |= dict.fromkeys(("rows", "stored", "absent", "beyond", "max |a-b|"), "right")
    return table("Tables, row by row", columns, rows, width)


def _notes(report: dict[str, Any]) -> list[str]:
    notes = [f"[yellow]not compared[/] {escape(text)}" for text in report["not_compared"][:_MOST]]
    refused = [request for request in report["refused"] if request["equal"] and not request["empty"]]
    for (signature, error), count in Counter((request["signature"], request["a"]) for request in refused).most_common(
        _MOST
    ):
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
