# SPDX-License-Identifier: Apache-2.0
"""Print a cut report in the terminal, from its JSON data only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from graph_tools.cli.terminal import Columns, show
from graph_tools.cli.terminal import table as make_table
from graph_tools.cli.units import (
    asked_text,
    bytes_text,
    change_text,
    difference_text,
    settings_text,
    table_size_text,
    weak_text,
)
from graph_tools.options import ROW_TYPES

_MOST = 12


def render_cut(report: dict[str, Any], console: Console) -> None:
    """Print a cut report."""
    show(console, sizes_table(report, "Cut", console.width))
    tables = _forecast if report["dry_run"] else _tables
    show(console, tables(report, console.width))
    if report["tiers"] is not None and report["tiers"]["tables"]:
        show(console, _tiers(report["tiers"], console.width))
    show(console, passes_table("Passes", report["passes"], console.width))
    show(console, _removed(report["removed"], console.width))
    for line in notes(report):
        console.print(line, highlight=False, soft_wrap=True)


def sizes_table(report: dict[str, Any], title: str, width: int) -> Table:
    """Return a table with the sizes of the source and of the result."""
    source, target = report["source"], report["target"]
    rows = []
    for key, text in (("bytes", bytes_text), ("nodes", "{:,}".format), ("variables", "{:,}".format)):
        before, after = source[key], target[key]
        rows.append([key, text(before), text(after), change_text(before, after)])
    columns: Columns = {"": "left", "before": "right", "after": "right", "change": "right"}
    return make_table("Forecast" if report["dry_run"] else title, columns, rows, width)


def _largest_first(report: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(report["tables"], key=lambda table: (-table["source_bytes"], table["name"]))


def _tables(report: dict[str, Any], width: int) -> Table:
    columns: Columns = {
        "table": "name",
        "family": "left",
        "rows x dim": "right",
        "zero rows": "right",
        "stored as": "left",
        "found by": "left",
        "absent key": "left",
        "before": "right",
        "after": "right",
    }
    records = _largest_first(report)
    with_family = any(record["family"] != "tensorflow" for record in records)
    rows = [
        [
            escape(record["name"]),
            record["family"] if with_family else "",
            table_size_text(record["keys"], record["dim"]),
            f"{record['zero_rows']:,}" if record["zero_rows"] else "",
            record["dtype"],
            record["layout"],
            record["absent"]["kind"] if record["absent"] else "",
            bytes_text(record["source_bytes"]),
            bytes_text(record["bytes"]),
        ]
        for record in records[:_MOST]
    ]
    if len(records) > _MOST:
        rest = records[_MOST:]
        sizes = [bytes_text(sum(record[key] for record in rest)) for key in ("source_bytes", "bytes")]
        rows.append([f"and {len(rest)} more", "", "", "", "", "", "", *sizes])
    return make_table("Tables", columns, rows, width, optional=("zero rows", "family", "found by", "rows x dim"))


def _forecast(report: dict[str, Any], width: int) -> Table:
    """Return a table of the bytes per table and row type; the requested row type is bold."""
    columns: Columns = {"table": "name"}
    columns |= dict.fromkeys(("rows x dim", "zero rows", "before", *ROW_TYPES), "right")
    records = _largest_first(report)
    rows = []
    for record in records[:_MOST]:
        sizes = [bytes_text(record["forecast"][name]) if name in record["forecast"] else "-" for name in ROW_TYPES]
        marked = [
            f"[bold]{size}[/]" if name == record["dtype"] else size for name, size in zip(ROW_TYPES, sizes, strict=True)
        ]
        zero = f"{record['zero_rows']:,}" if record["zero_rows"] else ""
        before = bytes_text(record["source_bytes"])
        rows.append([escape(record["name"]), table_size_text(record["keys"], record["dim"]), zero, before, *marked])
    if len(records) > _MOST:
        rest = records[_MOST:]
        sums = [sum(record["forecast"].get(name, record["bytes"]) for record in rest) for name in ROW_TYPES]
        before = bytes_text(sum(record["source_bytes"] for record in rest))
        rows.append([f"and {len(rest)} more", "", "", before, *map(bytes_text, sums)])
    return make_table("Bytes of tables by row type", columns, rows, width, optional=("zero rows", "rows x dim"))


def _tiers(tiers: dict[str, Any], width: int) -> Table:
    """Return a table of what tables take in each tier."""
    columns: Columns = {"table": "name"}
    columns |= dict.fromkeys(("disk, mapped", "resident", "tiered: index", "cache", "cached rows", "hits"), "right")

    def cells(found: dict[str, Any]) -> list[str]:
        sizes = (found["disk_bytes"], found["resident_bytes"], found["index_bytes"], found.get("cache_bytes"))
        rows, hits = found.get("cached_rows"), found.get("cached_share")
        texts = ["" if size is None else bytes_text(size) for size in sizes]
        return [*texts, "" if rows is None else f"{rows:,}", "" if hits is None else f"{hits:.1%}"]

    ordered = sorted(tiers["tables"], key=lambda table: (-table["disk_bytes"], table["table"]))
    rows = [[escape(found["table"]), *cells(found)] for found in ordered[:_MOST]]
    if len(ordered) > 1:
        name = "all" if len(ordered) <= _MOST else f"all {len(ordered)}, with those that are not shown"
        caches = [table["cache_bytes"] for table in ordered if table["cache_bytes"] is not None]
        rows.append([name, *cells(tiers | {"cache_bytes": sum(caches) if caches else None})])
    return make_table("Table files of a fused model by tier", columns, rows, width, optional=("hits", "cached rows"))


def passes_table(title: str, passes: list[dict[str, Any]], width: int) -> Table:
    """Return a table of the results of passes, with the most frequent reasons for sites that were not changed."""
    columns: Columns = {"pass": "left", "sites": "right", "nodes after": "right", "left alone, because": "text"}
    rows = []
    for pass_ in passes:
        if pass_["applied"] or pass_["refused"]:
            reasons = _count_alike(reason for _, reason in pass_["refused"])[:2]
            text = "\n".join(f"{count:,} x {escape(reason)}" for reason, count in reasons)
            rows.append([pass_["name"], f"{pass_['applied']:,}", f"{pass_['nodes_after']:,}", text])
    return make_table(title, columns, rows, width, optional=("nodes after",))


def _removed(removed: dict[str, Any], width: int) -> Table:
    rows = []
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for tensor in removed["tensors"]:
        counts[tensor["reason"]] += 1
        sizes[tensor["reason"]] += tensor["bytes"]
    for reason, size in sizes.most_common():
        rows.append(["tensors", f"{counts[reason]:,}", bytes_text(size), escape(reason)])
    gone: Counter[str] = Counter()
    for entry in removed["rows"]:
        gone[entry["reason"]] += entry["rows"]
    rows += [["rows", f"{count:,}", "", escape(reason)] for reason, count in gone.most_common()]
    reasons = _count_alike(node["reason"] for node in removed["nodes"])
    for reason, count in reasons[:_MOST]:
        rows.append(["nodes", f"{count:,}", "", escape(reason)])
    if len(reasons) > _MOST:
        rest = sum(count for _, count in reasons[_MOST:])
        rows.append(["nodes", f"{rest:,}", "", f"{len(reasons) - _MOST} more reasons, in the JSON report"])
    for kind in ("assets", "functions", "signatures"):
        for reason, count in Counter(entry["reason"] for entry in removed[kind]).most_common():
            rows.append([kind, f"{count:,}", "", escape(reason)])
    columns: Columns = {"what": "left", "count": "right", "bytes": "right", "why": "text"}
    return make_table("Removed", columns, rows, width)


def _count_alike(reasons: Iterable[str]) -> list[tuple[str, int]]:
    """Count reasons; names in quotes are replaced if they differ between otherwise equal reasons."""
    alike: dict[str, Counter[str]] = {}
    for reason in reasons:
        alike.setdefault(re.sub(r"'[^']*'", "…", reason), Counter())[reason] += 1
    counts = [(next(iter(found)) if len(found) == 1 else text, found.total()) for text, found in alike.items()]
    return sorted(counts, key=lambda item: -item[1])


def notes(report: dict[str, Any]) -> list[str]:
    """Return lines about lossy tables, the result of the verification, and the place of the result."""
    lines = [
        f"[yellow]lossy[/] {escape(table['name'])}: {table['lossy_rows']:,} rows were dropped that are not zero"
        for table in report["tables"]
        if table["lossy_rows"]
    ]
    for left_out in report["left_out"]:
        place = f" at {escape(left_out['site'])}" if left_out["site"] else ""
        why = f"since the outputs differ with it: {escape(left_out['reason'])}"
        lines.append(f"[yellow]left out[/] {escape(left_out['name'])}{place}, {why}")
    found = report["verification"]
    if found is not None:
        lines += [f"[yellow]warning[/] {escape(text)}" for text in weak_text(found)]
        lines.append(_verdict(found, report["scores_judged"]))
    elif not report["dry_run"]:
        unknown = ", ".join(op["op"] for op in report["unknown_ops"])
        unproved = f"; {escape(unknown)} was not run, since no given library has it" if unknown else ""
        lines.append(f"[yellow]not verified[/]: --no-verify was given{unproved}")
    where = "nothing was written" if report["dry_run"] else f"written to {escape(report['target']['path'])}"
    lines.append(f"{where} in {report['seconds']:.1f} s")
    return lines


def _verdict(found: dict[str, Any], judged_too: bool) -> str:
    difference = difference_text(found)
    judged = f"tolerance {found['tolerance']['absolute']:g} + {found['tolerance']['relative']:g} x |score|"
    if not judged_too:
        judged = "not judged, since rows are stored lossily and no --tolerance was given"
    word = "[green]verified[/]" if judged_too else "[yellow]compared[/]"
    unsettled = sum(output["unsettled"] for output in found["outputs"])
    if unsettled:
        judged += (
            f"; {unsettled:,} of {sum(output['elements'] for output in found['outputs']):,} scores depend on rounding"
        )
    return f"{word} {asked_text(found)}: {difference}, {judged}, {settings_text(found)}"
