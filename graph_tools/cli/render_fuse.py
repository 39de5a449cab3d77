# SPDX-License-Identifier: Apache-2.0
"""Print a fuse report in the terminal, from its JSON data only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from graph_tools.cli.render_cut import notes, passes_table, sizes_table
from graph_tools.cli.terminal import Columns, show, table
from graph_tools.cli.units import bytes_text, table_size_text

_MOST = 12
_LEAST_SHARE = 0.001


def render_fuse(report: dict[str, Any], console: Console, explain: bool = False) -> None:
    """Print a fuse report; with `explain`, including every site."""
    show(console, sizes_table(report, "Fused", console.width))
    show(console, _table_files(report["table_files"], console.width))
    show(console, passes_table("Fusing passes", report["fused"], console.width))
    if explain:
        show(console, _sites(report["fused"], console.width))
        show(console, _left_alone(report["fused"], console.width))
        _timing(report["timing"], console)
    if not any(pass_["sites"] for pass_ in report["fused"]):
        console.print("[yellow]nothing was fused[/]", "" if explain else "(--explain says more)", highlight=False)
    file_notes = [f"[yellow]note[/] {escape(text)}" for file in report["table_files"] for text in file["notes"]]
    for line in [*file_notes, *_precision(report["precision"]), *_live(report["live"]), *notes(report)]:
        console.print(line, highlight=False, soft_wrap=True)


def render_passes(passes: Mapping[str, str], console: Console) -> None:
    """Print the names and descriptions of passes."""
    width = max(map(len, passes), default=0)
    for name, text in passes.items():
        console.print(f"{name:{width}}  {escape(text)}", highlight=False, soft_wrap=True)


def _table_files(files: list[dict[str, Any]], width: int) -> Table:
    ordered = sorted(files, key=lambda file: (-file["bytes"], file["tables"][0]))
    rows = []
    for file in ordered[:_MOST]:
        more = f" and {len(file['tables']) - 1} more" if len(file["tables"]) > 1 else ""
        size = table_size_text(file["rows"], file["dim"])
        shared = "yes" if file["shared"] else ""
        name = escape(file["tables"][0]) + more
        rows.append(
            [name, size, file["row_type"], file["index_kind"], file["absent_key"], bytes_text(file["bytes"]), shared]
        )
    if len(ordered) > _MOST:
        rest = ordered[_MOST:]
        rows.append([f"and {len(rest)} more", "", "", "", "", bytes_text(sum(file["bytes"] for file in rest)), ""])
    columns: Columns = {
        "table": "name",
        "rows x dim": "right",
        "stored as": "left",
        "found by": "left",
        "absent key": "left",
        "bytes": "right",
        "shared": "left",
    }
    return table("Table files", columns, rows, width, optional=("shared", "found by"))


def _sites(passes: list[dict[str, Any]], width: int) -> Table:
    rows = [
        [pass_["name"], escape(site["node"]), site["op"], site["what"]] for pass_ in passes for site in pass_["sites"]
    ]
    columns: Columns = {"pass": "left", "node": "name", "op": "left", "what it does": "text"}
    return table("Fused, site by site", columns, rows, width, optional=("pass",))


def _left_alone(passes: list[dict[str, Any]], width: int) -> Table:
    rows = [[pass_["name"], escape(site), escape(reason)] for pass_ in passes for site, reason in pass_["refused"]]
    columns: Columns = {"pass": "left", "site": "name", "left alone, because": "text"}
    return table("Left alone, site by site", columns, rows, width)


def _timing(found: dict[str, Any] | None, console: Console) -> None:
    """Print where the source spends its time."""
    if found is None:
        return
    if found["note"]:
        console.print(f"[yellow]note[/] {escape(found['note'])}", highlight=False, soft_wrap=True)
        return
    # Regions without a measurable share of the time are not shown.
    shown = [region for region in found["regions"] if region["share"] >= _LEAST_SHARE][:_MOST]
    rows = [
        [
            f"{region['share']:.1%}",
            escape(region["node"]),
            escape(region["ops"]),
            f"{region['nodes']:,}",
            escape(region["reason"]),
        ]
        for region in shown
    ]
    columns: Columns = {
        "of the time": "right",
        "longest node": "name",
        "ops": "text",
        "nodes": "right",
        "not fused, because": "text",
    }
    show(console, table("Not fused, by time", columns, rows, console.width, optional=("nodes", "ops")))
    console.print(
        f"{found['replaced']:.1%} of the time of the source went to what is replaced; traced with "
        f"{found['requests']:,} generated requests, {found['rows']:,} rows, a median of {found['median_us']:,.0f} us "
        "in all nodes of a request",
        highlight=False,
        soft_wrap=True,
    )


def _live(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return []
    tables, variables = len(found["tables"]), len(found["variables"])
    return [
        f"[bold]live[/] follows {tables} table{'' if tables == 1 else 's'} and {variables} "
        f"variable{'' if variables == 1 else 's'} of lineage {found['lineage']} from epoch {found['epoch']}"
    ]


def _precision(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return []
    word = f"{found['permitted']}{', forced' * found['forced']}"
    lines = [f"[bold]precision[/] {word}: {escape(found['reason'])}"]
    int8, without = found["int8"], found["without_int8"]
    if int8 is not None:
        if found["permitted"] != "int8":
            lines.append(f"  not int8: {escape(int8['reason'])}")
        lines += [
            f"  {layer['precision']} instead of int8: {escape(_layer(layer))}: {escape(layer['reason'])}"
            for layer in int8["kept"]
        ]
        lines += _measured("int8", int8["certificate"])
    if without is not None:
        lines.append(f"  on CPUs without int8 arithmetic {without['permitted']}: {escape(without['reason'])}")
    return lines + _measured("bf16", found["certificate"])


def _layer(found: dict[str, Any]) -> str:
    return f"layer {found['layer']} of '{found['node']}' (weights '{found['weights']}')"


def _measured(precision: str, found: dict[str, Any] | None) -> list[str]:
    """Describe a certificate."""
    if found is None:
        return []
    losses = [
        f", {name} loss {max(0.0, float(found[key])):.2g}"
        for key, name in (("rank_correlation_loss", "rank correlation"), ("auc_loss", "AUC"))
        if found[key] is not None
    ]
    return [
        f"  {precision} against fp32: largest difference {float(found['max_difference']):.2g}{''.join(losses)}; "
        f"{found['requests']:,} requests, {found['rows']:,} rows, "
        f"measured with {found['arithmetic']} on {escape(found['cpu'])}"
    ]
