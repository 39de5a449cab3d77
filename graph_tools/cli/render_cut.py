# SPDX-License-Identifier: Apache-2.0
"""The terminal's view of a cut report; everything comes from the JSON data."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from graph_tools.cli.units import bytes_text, difference_text, percent_text

_MOST = 12


def render_cut(report: dict[str, Any], console: Console) -> None:
    """Print a cut report."""
    console.print(_sizes(report))
    if report["tables"]:
        console.print(_tables(report))
    if any(one["applied"] or one["refused"] for one in report["passes"]):
        console.print(_passes(report["passes"]))
    removed = _removed(report["removed"])
    if removed.row_count:
        console.print(removed)
    for line in _notes(report):
        console.print(line, highlight=False)


def _sizes(report: dict[str, Any]) -> Table:
    source, target = report["source"], report["target"]
    table = Table(title="Forecast" if report["dry_run"] else "Cut", title_justify="left")
    for name in ("", "before", "after", "less"):
        table.add_column(name, justify="left" if not name else "right")
    for label, key, text in (("bytes", "bytes", bytes_text), ("nodes", "nodes", str), ("variables", "variables", str)):
        before, after = source[key], target[key]
        table.add_row(label, text(before), text(after), percent_text(1 - after / before if before else 0.0))
    return table


def _tables(report: dict[str, Any]) -> Table:
    table = Table(title="Tables", title_justify="left")
    for name, justify in (
        ("table", "left"), ("family", "left"), ("keys", "right"), ("dim", "right"), ("zero rows", "right"),
        ("absent key", "left"), ("stored as", "left"), ("before", "right"), ("after", "right"),
    ):  # fmt: skip
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    records = sorted(report["tables"], key=lambda one: -one["source_bytes"])
    for one in records[:_MOST]:
        table.add_row(
            escape(one["name"]),
            one["family"],
            f"{one['keys']:,}",
            str(one["dim"]),
            f"{one['zero_rows']:,}",
            one["absent"]["kind"],
            f"{one['layout']} {one['dtype']}",
            bytes_text(one["source_bytes"]),
            bytes_text(one["chosen_bytes"]),
        )
    if len(records) > _MOST:
        rest = records[_MOST:]
        before, after = (sum(one[key] for one in rest) for key in ("source_bytes", "chosen_bytes"))
        table.add_row(f"and {len(rest)} more", "", "", "", "", "", "", bytes_text(before), bytes_text(after))
    return table


def _passes(passes: list[dict[str, Any]]) -> Table:
    table = Table(title="Passes", title_justify="left")
    for name, justify in (
        ("pass", "left"),
        ("sites", "right"),
        ("nodes after", "right"),
        ("left alone, because", "left"),
    ):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for one in passes:
        if one["applied"] or one["refused"]:
            reasons = Counter(reason for _, reason in one["refused"]).most_common(2)
            text = "\n".join(f"{count} x {escape(reason)}" for reason, count in reasons)
            table.add_row(one["name"], str(one["applied"]), str(one["nodes_after"]), text)
    return table


def _removed(removed: dict[str, Any]) -> Table:
    table = Table(title="Removed", title_justify="left")
    for name, justify in (("what", "left"), ("count", "right"), ("bytes", "right"), ("why", "left")):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for one in removed["tensors"]:
        counts[one["reason"]] += 1
        sizes[one["reason"]] += one["bytes"]
    for reason, size in sizes.most_common():
        table.add_row("tensors", str(counts[reason]), bytes_text(size), escape(reason))
    # What a reason names in quotes differs from node to node; the JSON report has each.
    nodes = Counter(one["reason"].split(" '")[0] for one in removed["nodes"])
    for reason, count in nodes.most_common(_MOST):
        table.add_row("nodes", str(count), "", escape(reason))
    for kind in ("assets", "functions", "signatures"):
        for reason, count in Counter(one["reason"] for one in removed[kind]).most_common():
            table.add_row(kind, str(count), "", escape(reason))
    return table


def _notes(report: dict[str, Any]) -> list[str]:
    notes = []
    for one in report["tables"]:
        notes += [f"[yellow]lossy[/] {escape(one['name'])}: {escape(text)}" for text in one.get("lossy", ())]
    found = report["verification"]
    if found is not None:
        worst = max((one["max_abs_difference"] for one in found["outputs"]), default=0.0)
        notes.append(
            f"[green]verified[/] {found['requests']} requests, {found['rows']} rows: {difference_text(worst)}, "
            f"tolerance {found['tolerance']['absolute']:g} + {found['tolerance']['relative']:g} x |score|"
        )
    elif not report["dry_run"]:
        notes.append("[yellow]not verified[/]: --no-verify was given")
    where = "nothing was written" if report["dry_run"] else f"written to {escape(report['target']['path'])}"
    notes.append(f"{where} in {report['seconds']:.1f} s")
    return notes
