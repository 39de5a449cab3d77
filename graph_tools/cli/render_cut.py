# SPDX-License-Identifier: Apache-2.0
"""The terminal's view of a cut report; everything comes from the JSON data."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from graph_tools.cli.terminal import Justify
from graph_tools.cli.terminal import table as make_table
from graph_tools.cli.units import bytes_text, difference_text, percent_text

_MOST = 12


def render_cut(report: dict[str, Any], console: Console) -> None:
    """Print a cut report."""
    console.print(_sizes(report))
    if report["tables"]:
        console.print(_forecast(report) if report["dry_run"] else _tables(report))
    if any(one["applied"] or one["refused"] for one in report["passes"]):
        console.print(_passes(report["passes"]))
    removed = _removed(report["removed"])
    if removed.row_count:
        console.print(removed)
    for line in _notes(report):
        console.print(line, highlight=False)


def _sizes(report: dict[str, Any]) -> Table:
    source, target = report["source"], report["target"]
    title = "Forecast" if report["dry_run"] else "Cut"
    table = make_table(title, {"": "left", "before": "right", "after": "right", "less": "right"})
    for label, key, text in (("bytes", "bytes", bytes_text), ("nodes", "nodes", str), ("variables", "variables", str)):
        before, after = source[key], target[key]
        table.add_row(label, text(before), text(after), percent_text(1 - after / before if before else 0.0))
    return table


def _tables(report: dict[str, Any]) -> Table:
    names: dict[str, Justify] = {
        "table": "left",
        "family": "left",
        "keys": "right",
        "dim": "right",
        "zero rows": "right",
    }
    more: dict[str, Justify] = {"absent key": "left", "stored as": "left", "before": "right", "after": "right"}
    table = make_table("Tables", names | more)
    records = sorted(report["tables"], key=lambda one: -one["source_bytes"])
    for one in records[:_MOST]:
        table.add_row(
            escape(one["name"]),
            one["family"],
            f"{one['keys']:,}",
            str(one["dim"]),
            f"{one['zero_rows']:,}",
            one["absent"]["kind"] if one["absent"] else "",
            f"{one['layout']} {one['dtype']}",
            bytes_text(one["source_bytes"]),
            bytes_text(one["bytes"]),
        )
    if len(records) > _MOST:
        rest = records[_MOST:]
        before, after = (sum(one[key] for one in rest) for key in ("source_bytes", "bytes"))
        table.add_row(f"and {len(rest)} more", "", "", "", "", "", "", bytes_text(before), bytes_text(after))
    return table


def _forecast(report: dict[str, Any]) -> Table:
    """Show what each table would take in each row type; the one that was asked for is marked."""
    types = ("fp32", "bf16", "fp16", "int8", "int4")
    columns: dict[str, Justify] = {"table": "left"}
    columns |= dict.fromkeys(("keys", "dim", "zero rows", "as exported", *types), "right")
    table = make_table("Bytes of tables by row type", columns)
    records = sorted(report["tables"], key=lambda one: -one["source_bytes"])
    for one in records[:_MOST]:
        sizes = [bytes_text(one["forecast"][name]) if name in one["forecast"] else "-" for name in types]
        sizes = [f"[bold]{size}[/]" if name == one["dtype"] else size for name, size in zip(types, sizes, strict=True)]
        counts = [f"{one['keys']:,}", str(one["dim"]), f"{one['zero_rows']:,}", bytes_text(one["source_bytes"])]
        table.add_row(escape(one["name"]), *counts, *sizes)
    if len(records) > _MOST:
        rest = records[_MOST:]
        sums = [sum(one["forecast"].get(name, one["bytes"]) for one in rest) for name in types]
        cells = ["", "", "", bytes_text(sum(one["source_bytes"] for one in rest)), *map(bytes_text, sums)]
        table.add_row(f"and {len(rest)} more", *cells)
    return table


def _passes(passes: list[dict[str, Any]]) -> Table:
    table = make_table(
        "Passes", {"pass": "left", "sites": "right", "nodes after": "right", "left alone, because": "left"}
    )
    for one in passes:
        if one["applied"] or one["refused"]:
            reasons = Counter(reason for _, reason in one["refused"]).most_common(2)
            text = "\n".join(f"{count} x {escape(reason)}" for reason, count in reasons)
            table.add_row(one["name"], str(one["applied"]), str(one["nodes_after"]), text)
    return table


def _removed(removed: dict[str, Any]) -> Table:
    table = make_table("Removed", {"what": "left", "count": "right", "bytes": "right", "why": "left"})
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for one in removed["tensors"]:
        counts[one["reason"]] += 1
        sizes[one["reason"]] += one["bytes"]
    for reason, size in sizes.most_common():
        table.add_row("tensors", str(counts[reason]), bytes_text(size), escape(reason))
    for reason, count in _node_reasons(removed["nodes"])[:_MOST]:
        table.add_row("nodes", str(count), "", escape(reason))
    for kind in ("assets", "functions", "signatures"):
        for reason, count in Counter(one["reason"] for one in removed[kind]).most_common():
            table.add_row(kind, str(count), "", escape(reason))
    return table


def _node_reasons(nodes: list[dict[str, str]]) -> list[tuple[str, int]]:
    """Count nodes by reason; what a reason names in quotes is left out where it differs from node to node."""
    alike: dict[str, Counter[str]] = {}
    for one in nodes:
        alike.setdefault(re.sub(r"'[^']*'", "…", one["reason"]), Counter())[one["reason"]] += 1
    counts = [(next(iter(found)) if len(found) == 1 else text, found.total()) for text, found in alike.items()]
    return sorted(counts, key=lambda one: -one[1])


def _notes(report: dict[str, Any]) -> list[str]:
    notes = [
        f"[yellow]lossy[/] {escape(one['name'])}: {one['lossy_rows']:,} rows were dropped that are not zero"
        for one in report["tables"]
        if one["lossy_rows"]
    ]
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
