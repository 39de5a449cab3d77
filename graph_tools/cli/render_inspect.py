# SPDX-License-Identifier: Apache-2.0
"""Print an inspect report in the terminal, from its JSON data only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from graph_tools.cli.terminal import Columns, show, table
from graph_tools.cli.units import bytes_text, table_size_text

_MOST = 10


def render_inspect(report: dict[str, Any], console: Console) -> None:
    """Print an inspect report: models side by side, then the contents of each."""
    models = report["models"]
    letters = [_letter(place) for place in range(len(models))] if len(models) > 1 else [""]
    for letter, model in zip(letters, models, strict=True):
        console.print(
            f"[bold]{letter}[/] {escape(model['path'])}" if letter else escape(model["path"]),
            highlight=False,
            soft_wrap=True,
        )
    console.print()
    columns: Columns = {letter or " ": "right" for letter in letters}
    show(console, _overview(models, columns, console.width))
    for letter, model in zip(letters, models, strict=True):
        if model["custom_ops"]:
            of = f" ({letter})" if letter else ""
            console.print(f"custom ops{of}: {escape(', '.join(model['custom_ops']))}\n", highlight=False)
    show(console, _ops(models, columns, console.width))
    for letter, model in zip(letters, models, strict=True):
        of = f" ({letter})" if letter else ""
        show(console, _signatures(model, f"Signatures{of}", console.width))
        show(console, _contents(model, f"Variables and tables{of}", console.width))
        show(console, _unused(model, f"Not needed for serving{of}", console.width))


def _letter(place: int) -> str:
    return chr(ord("a") + place) if place < 26 else str(place + 1)


def _overview(models: list[dict[str, Any]], columns: Columns, width: int) -> Table:
    rows: list[list[str]] = []

    def row(label: str, text: Callable[[dict[str, Any]], str]) -> None:
        rows.append([label, *(escape(text(model)) for model in models)])

    row("kind", lambda model: model["kind"])
    row("bytes", lambda model: bytes_text(model["bytes"]))
    row("bytes not needed", lambda model: bytes_text(model["needless_bytes"]))
    row("nodes", lambda model: f"{model['nodes']:,}")
    row("nodes needed", lambda model: f"{model['needed_nodes']:,}")
    row("functions", lambda model: f"{model['functions']:,}")
    row("variables", lambda model: _count(model["variables"]))
    row("variables needed", lambda model: _count([x for x in model["variables"] if x["used"]]))
    row("tables", lambda model: _count(model["tables"]))
    row("assets", lambda model: _count(model["assets"]))
    row("training systems", lambda model: ", ".join(model["families"]) or "TensorFlow")
    row("custom ops", lambda model: str(len(model["custom_ops"]) or "none"))
    left: Columns = {"": "left"}
    return table("Models", left | columns, rows, width)


def _count(items: list[dict[str, Any]]) -> str:
    return f"{len(items):,}, {bytes_text(sum(item['bytes'] for item in items))}" if items else "none"


def _ops(models: list[dict[str, Any]], columns: Columns, width: int) -> Table:
    total: Counter[str] = Counter()
    for model in models:
        total.update(model["ops"])
    most = [op for op, _ in total.most_common(_MOST)]
    rows = [[escape(op), *(f"{model['ops'].get(op, 0):,}" for model in models)] for op in most]
    if len(total) > _MOST:
        rest = [sum(model["ops"].values()) - sum(model["ops"].get(op, 0) for op in most) for model in models]
        rows.append([f"and {len(total) - _MOST} more", *(f"{count:,}" for count in rest)])
    left: Columns = {"op": "name"}
    return table("Ops", left | columns, rows, width)


def _signatures(model: dict[str, Any], title: str, width: int) -> Table:
    rows = []
    for signature in model["signatures"]:
        name = escape(signature["name"])
        for kind in ("inputs", "outputs"):
            ends = signature[kind]
            for number, end in enumerate(ends[:_MOST]):
                word = kind if number == 0 else ""
                rows.append([name, word, escape(end["name"]), end["dtype"], escape(_shape(end["shape"]))])
                name = ""
            if len(ends) > _MOST:
                rows.append(["", "", f"and {len(ends) - _MOST} more", "", ""])
    columns: Columns = {"signature": "name", "": "left", "key": "name", "dtype": "left", "shape": "left"}
    return table(title, columns, rows, width)


def _shape(shape: list[int | None] | None) -> str:
    return "any" if shape is None else "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def _contents(model: dict[str, Any], title: str, width: int) -> Table:
    """Return a table of variables and tables; those that outputs need come first."""
    held = sorted([*model["variables"], *model["tables"]], key=lambda content: (not content["used"], -content["bytes"]))
    rows = []
    for content in held[:_MOST]:
        if "family" in content:
            kind, notes = f"{content['family']} table", [f"absent key: {content['absent']}"]
            shape = "?" if content["rows"] is None else table_size_text(content["rows"], content["dim"] or 1)
        else:
            kind, notes = "variable", []
            shape = " x ".join(f"{size:,}" for size in content["shape"]) or "scalar"
        notes += [f"{content['index']} index"] if content.get("index") else []
        widths = ", ".join(
            f"{rows['dim']} elements from row {rows['first']:,} on" for rows in content.get("narrow") or ()
        )
        notes += [widths] if widths else []
        notes += [] if content["used"] else ["no output needs it"]
        notes += [f"copy of {content['duplicate_of']}"] if content.get("duplicate_of") else []
        note = escape(", ".join(notes))
        rows.append([escape(content["name"]), kind, shape, content["dtype"], bytes_text(content["bytes"]), note])
    if len(held) > _MOST:
        rest = sum(content["bytes"] for content in held[_MOST:])
        rows.append([f"and {len(held) - _MOST} more", "", "", "", bytes_text(rest), ""])
    columns: Columns = {
        "name": "name",
        "kind": "left",
        "rows x dim": "right",
        "dtype": "left",
        "bytes": "right",
        "notes": "text",
    }
    return table(title, columns, rows, width, optional=("dtype",))


def _unused(model: dict[str, Any], title: str, width: int) -> Table:
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for tensor in model["unused_tensors"]:
        counts[tensor["reason"]] += 1
        sizes[tensor["reason"]] += tensor["bytes"]
    rows = [[f"{counts[reason]:,}", bytes_text(size), escape(reason)] for reason, size in sizes.most_common()]
    return table(title, {"tensors": "right", "bytes": "right", "why": "text"}, rows, width)
