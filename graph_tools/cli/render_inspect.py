# SPDX-License-Identifier: Apache-2.0
"""The terminal's view of an inspect report; everything comes from the JSON data."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from graph_tools.cli.units import bytes_text

_MOST = 10


def render_inspect(report: dict[str, Any], console: Console) -> None:
    """Print an inspect report: models side by side, then what each holds."""
    models = report["models"]
    console.print(_overview(models))
    console.print(_ops(models))
    for model in models:
        name = f" of {escape(model['path'])}" if len(models) > 1 else ""
        console.print(_signatures(model, f"Signatures{name}"))
        if model["variables"] or model["tables"]:
            console.print(_held(model, f"Variables and tables{name}"))
        if model["unused_tensors"]:
            console.print(_unused(model, f"Not needed for serving{name}"))


def _table(title: str, columns: dict[str, str]) -> Table:
    table = Table(title=title, title_justify="left")
    for name, justify in columns.items():
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    return table


def _overview(models: list[dict[str, Any]]) -> Table:
    table = _table("Models", {"": "left", **{escape(one["path"]): "right" for one in models}})

    def row(label: str, cells: list[str]) -> None:
        table.add_row(label, *map(escape, cells))

    row("kind", [one["kind"] for one in models])
    row("bytes on disk", [bytes_text(one["bytes"]) for one in models])
    row("not needed for serving", [bytes_text(one["needless_bytes"]) for one in models])
    row("nodes", [f"{one['nodes']:,}" for one in models])
    row("nodes that outputs need", [f"{one['needed_nodes']:,}" for one in models])
    row("functions", [str(one["functions"]) for one in models])
    for kind in ("variables", "tables"):
        row(kind, [f"{len(one[kind])}, {bytes_text(sum(x['bytes'] for x in one[kind]))}" for one in models])
    row("assets", [f"{len(one['assets'])}, {bytes_text(sum(x['bytes'] for x in one['assets']))}" for one in models])
    row("training systems", [", ".join(one["families"]) or "TensorFlow" for one in models])
    row("custom ops", [", ".join(one["custom_ops"]) or "none" for one in models])
    return table


def _ops(models: list[dict[str, Any]]) -> Table:
    table = _table("Ops", {"op": "left", **{escape(one["path"]): "right" for one in models}})
    total: Counter[str] = Counter()
    for one in models:
        total.update(one["ops"])
    for op, _ in total.most_common(_MOST):
        table.add_row(op, *(f"{one['ops'].get(op, 0):,}" for one in models))
    if len(total) > _MOST:
        rest = [
            sum(one["ops"].values()) - sum(one["ops"].get(op, 0) for op, _ in total.most_common(_MOST))
            for one in models
        ]
        table.add_row(f"and {len(total) - _MOST} more", *(f"{count:,}" for count in rest))
    return table


def _signatures(model: dict[str, Any], title: str) -> Table:
    table = _table(title, {"signature": "left", "": "left", "key": "left", "dtype": "left", "shape": "left"})
    for signature in model["signatures"]:
        name = escape(signature["name"])
        for kind in ("inputs", "outputs"):
            ends = signature[kind]
            for number, one in enumerate(ends[:_MOST]):
                shape = "any" if one["shape"] is None else str(["?" if size is None else size for size in one["shape"]])
                word = f"{kind[:-1]}s" if number == 0 else ""
                table.add_row(name, word, escape(one["name"]), one["dtype"], escape(shape.replace("'", "")))
                name = ""
            if len(ends) > _MOST:
                table.add_row("", "", f"and {len(ends) - _MOST} more", "", "")
    return table


def _held(model: dict[str, Any], title: str) -> Table:
    columns = {"name": "left", "kind": "left", "rows x dim": "right", "dtype": "left", "bytes": "right", "": "left"}
    table = _table(title, columns)
    held = sorted([*model["variables"], *model["tables"]], key=lambda one: -one["bytes"])
    for one in held[:_MOST]:
        if "family" in one:
            kind, absent = f"{one['family']} table", f"absent key: {one['absent']}"
            shape = "?" if one["rows"] is None else f"{one['rows']:,} x {one['dim'] or 1}"
        else:
            kind, absent = "variable", ""
            shape = " x ".join(f"{size:,}" for size in one["shape"]) or "scalar"
        notes = [absent] if absent else []
        notes += [] if one["used"] else ["no output needs it"]
        notes += [f"copy of {one['duplicate_of']}"] if one.get("duplicate_of") else []
        table.add_row(
            escape(one["name"]), kind, shape, one["dtype"], bytes_text(one["bytes"]), escape(", ".join(notes))
        )
    if len(held) > _MOST:
        rest = sum(one["bytes"] for one in held[_MOST:])
        table.add_row(f"and {len(held) - _MOST} more", "", "", "", bytes_text(rest), "")
    return table


def _unused(model: dict[str, Any], title: str) -> Table:
    table = _table(title, {"tensors": "right", "bytes": "right", "why": "left"})
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for one in model["unused_tensors"]:
        counts[one["reason"]] += 1
        sizes[one["reason"]] += one["bytes"]
    for reason, size in sizes.most_common():
        table.add_row(str(counts[reason]), bytes_text(size), escape(reason))
    return table
