# SPDX-License-Identifier: Apache-2.0
"""Print the reports of `delta` in the terminal, from their JSON data only."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape

from graph_tools.cli.terminal import Columns, show, table
from graph_tools.cli.units import bytes_text

_MOST = 20


def render_delta(report: dict[str, Any], console: Console) -> None:
    """Print the content of a segment or a timeline."""
    console.print(f"[bold]{escape(report['path'])}[/]", highlight=False, soft_wrap=True)
    console.print(f"lineage {report['lineage'] or 'unknown'}, epoch {report['epoch']:,}", highlight=False)
    if report["terms"]:
        console.print(f"writers: {len(report['terms']):,}, the last with term {report['terms'][-1]:,}", highlight=False)
    console.print()
    segments = report["segments"]
    _segments(segments, console)
    if segments:
        console.print(f"[bold]The last segment[/], {segments[-1]['file']}", highlight=False)
        console.print()
        _changes(segments[-1], console)
    if report["fault"]:
        console.print(f"[red]fault:[/] {escape(report['fault'])}", highlight=False, soft_wrap=True)


def render_written(report: dict[str, Any], console: Console) -> None:
    """Print a segment that was written."""
    _segments([report["segment"]], console)
    _changes(report["segment"], console)
    if report["replaced"]:
        console.print(f"{len(report['replaced']):,} segments replaced", highlight=False)
    console.print(f"{report['seconds']:.1f} s", highlight=False)


def render_truncated(report: dict[str, Any], console: Console) -> None:
    """Print what was withdrawn from a timeline."""
    console.print(f"{escape(report['path'])} ends with epoch {report['epoch']:,}", highlight=False, soft_wrap=True)
    console.print(f"withdrawn by term {report['term']:,}:", highlight=False)
    for name in report["withdrawn"]:
        console.print(f"  {escape(name)}", highlight=False, soft_wrap=True)


def _segments(segments: list[dict[str, Any]], console: Console) -> None:
    rows = []
    for segment in segments[-_MOST:]:
        first, last = segment["first_epoch"], segment["last_epoch"]
        changed, deleted = (sum(entry[key] for entry in segment["tables"]) for key in ("changed", "deleted"))
        rows.append(
            [
                f"{first:,}" if first == last else f"{first:,} to {last:,}",
                f"{segment['term']:,}",
                _time_text(segment["event_time"]),
                _time_text(segment["write_time"]),
                f"{changed:,}",
                f"{deleted:,}",
                f"{len(segment['variables']):,}",
                bytes_text(segment["bytes"]),
            ]
        )
    columns: Columns = {"epoch": "left", "term": "right", "newest sample": "left", "written": "left"}
    columns |= {"changed keys": "right", "deleted keys": "right", "variables": "right", "size": "right"}
    hidden = len(segments) - len(rows)
    title = f"Segments, the last {len(rows)} of {len(segments):,}" if hidden else "Segments"
    show(console, table(title, columns, rows, console.width, optional=("newest sample", "term")))


def _changes(segment: dict[str, Any], console: Console) -> None:
    rows = [
        [
            escape(entry["name"]),
            entry["key_kind"].replace("_", " "),
            f"{entry['dim']:,}",
            *(f"{entry[key]:,}" for key in ("changed", "deleted", "default_rows")),
            _not_finite_text(entry),
        ]
        for entry in segment["tables"]
    ]
    columns: Columns = {"table": "name", "keys": "left", "dim": "right", "changed": "right", "deleted": "right"}
    show(console, table("Tables", columns | {"default rows": "right", "not finite": "right"}, rows, console.width))
    rows = [[escape(entry["name"]), str(entry["shape"]), _not_finite_text(entry)] for entry in segment["variables"]]
    columns = {"variable": "name", "shape": "left", "not finite": "right"}
    show(console, table("Variables", columns, rows, console.width))
    rows = [[escape(name), f"{position:,}"] for name, position in segment["streams"].items()]
    show(console, table("Streams", {"stream": "name", "position": "right"}, rows, console.width))


def _not_finite_text(entry: dict[str, Any]) -> str:
    """Return the number of rows or elements that servers refuse; "" if there are none."""
    return f"[yellow]{entry['not_finite']:,}[/]" if entry["not_finite"] else ""


def _time_text(microseconds: int | None) -> str:
    """Return a time as text, or "" if it is not known or no date."""
    if microseconds is None:
        return ""
    try:
        return datetime.fromtimestamp(microseconds / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return f"{microseconds:,} µs"
