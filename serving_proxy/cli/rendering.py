# SPDX-License-Identifier: Apache-2.0
"""The terminal's view of the proxy's responses; all of it is made from the JSON data."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

_STYLES = {"ready": "green", "failed": "bold red", "draining": "yellow", "stopped": "dim"}
_WIDE = 140


def console() -> Console:
    """Make a console as wide as the terminal; in a pipe or a file, 140 wide."""
    made = Console()
    return made if made.is_terminal else Console(width=_WIDE)


def render_status(status: dict[str, Any]) -> RenderableType:
    """Return hosts, models and running jobs as tables."""
    parts: list[RenderableType] = []
    if status["fault"]:
        parts.append(Text.from_markup(f"[bold red]fault:[/] {escape(status['fault'])}"))
    parts.append(_hosts(status["hosts"]) if status["hosts"] else Text("No host is running."))
    if status["models"]:
        parts.append(_models(status["models"]))
    else:
        parts.append(Text("Nothing is deployed: `serving-proxy deploy NAME PATH`."))
    parts += [Text(f"{job['model']}/{job['version']}: {job['kind']}, {job['step']}") for job in status["jobs"]]
    return Group(*parts)


def render_model(model: dict[str, Any]) -> RenderableType:
    """Return the versions of a model and their sources as a table."""
    columns = (
        "version", "state", "role", "traffic", "shadow", "labels", "since", "precision", "bytes", "sha256", "source",
    )  # fmt: skip
    rows = [
        [
            str(version["version"]),
            _state(version),
            version["role"] + _ramp(model, version["version"]),
            _percent(version["traffic"]),
            _percent(version["shadow"]),
            ", ".join(version["labels"]),
            clock(version["since"]),
            _on_hosts(version, "precision"),
            "" if version["bytes"] is None else _bytes(version["bytes"]),
            (version["sha256"] or "")[:12],
            escape(version["source"]) + (f" [dim](optimized, {version['optimize']})[/]" if version["optimize"] else ""),
        ]
        for version in model["versions"]
    ]
    title = model["name"] + (", paused" if model["paused"] else "")
    return _table(title, columns, rows, right=("version", "traffic", "shadow", "bytes"))


def render_explain(found: dict[str, Any]) -> RenderableType:
    """Return the sentences that explain a model's state."""
    lines = [f"[bold]{escape(found['model'])}[/]"]
    lines += [f"  {escape(line)}" for line in found["lines"]]
    for version, why in found["versions"].items():
        lines.append(f"[bold]{escape(found['model'])}/{version}[/]")
        lines += [f"  {escape(line)}" for line in why]
    return Text.from_markup("\n".join(lines))


def render_events(events: Iterable[dict[str, Any]]) -> RenderableType:
    """Return events, a line each."""
    return Text("\n".join(event_line(event) for event in events))


def event_line(event: dict[str, Any]) -> str:
    """Return one event as a line."""
    return f"{event['id']:>6}  {clock(event['at'])}  {event['kind']:<9} {event['message']}"


def render_guard(name: str, found: dict[str, Any]) -> RenderableType:
    """Return the limits of a model and the guard's verdicts on its versions."""
    limits = ", ".join(f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
                       for key, value in found["settings"].items() if value is not None)  # fmt: skip
    columns = ("version", "as", "says", "requests", "errors", "p99", "because")
    rows = [
        [
            number,
            verdict["role"],
            verdict["ruling"],
            str(verdict["requests"]),
            "" if verdict["error_percent"] is None else f"{verdict['error_percent']:.3g} %",
            "" if verdict["p99_ms"] is None else f"{verdict['p99_ms']:.3g} ms",
            escape(verdict["reason"]),
        ]
        for number, verdict in found["versions"].items()
    ]
    text = Text(f"{name}: {limits}")
    if not rows:
        return Group(text, Text("No version gets requests."))
    return Group(text, _table("Verdicts", columns, rows, right=("version", "requests", "errors", "p99")))


def render_request_log(name: str, found: dict[str, Any]) -> RenderableType:
    """Return the request log of a model."""
    sample = found["sample"]
    share = "none" if sample is None else f"{sample:g} %"
    written = f"{_bytes(found['bytes'])} in {len(found['files'])} files"
    text = Text(f"{name}: {share} of the requests written down; {written}")
    rows = [
        [clock(file["began"]), file["host"], _bytes(file["bytes"]), escape(file["path"])] for file in found["files"]
    ]
    return Group(text, _table("Files", ("since", "host", "bytes", "path"), rows, right=("bytes",))) if rows else text


def clock(at: float) -> str:
    """Return a time as text, in the user's time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _hosts(hosts: list[dict[str, Any]]) -> RenderableType:
    columns = ("host", "state", "origin", "pid", "generation", "cpus", "restarts", "endpoints", "note")
    rows = [
        [
            escape(host["name"]),
            f"[{_STYLES.get(host['state'], 'default')}]{host['state']}[/]",
            host["origin"],
            str(host["pid"] or ""),
            str(host["generation"]),
            host["cpus"],
            str(host["restarts"] or ""),
            escape(", ".join(f"{name} {place}" for name, place in host["endpoints"].items())),
            escape(host["note"]),
        ]
        for host in hosts
    ]
    return _table("Hosts", columns, rows, right=("pid", "generation", "restarts"))


def _models(models: list[dict[str, Any]]) -> RenderableType:
    columns = (
        "model", "version", "state", "role", "traffic", "shadow", "labels", "in flight", "cpus", "precision", "reason",
    )  # fmt: skip
    rows = []
    for model in models:
        name = escape(model["name"]) + (" [yellow](paused)[/]" if model["paused"] else "")
        for version in model["versions"]:
            hosts = version["hosts"].values()
            rows.append(
                [
                    name,
                    str(version["version"]),
                    _state(version),
                    version["role"] + _ramp(model, version["version"]),
                    _percent(version["traffic"]),
                    _percent(version["shadow"]),
                    ", ".join(version["labels"]),
                    str(sum(host.get("in_flight", 0) for host in hosts) or ""),
                    _on_hosts(version, "cpuset"),
                    _on_hosts(version, "precision"),
                    escape(version["reason"]),
                ]
            )
            name = ""
    return _table("Models", columns, rows, right=("version", "traffic", "shadow", "in flight"))


def _ramp(model: dict[str, Any], version: int) -> str:
    found = [ramp for ramp in model["ramps"] if ramp["version"] == version]
    return f", to {found[0]['to']:g} %" if found else ""


def _on_hosts(version: dict[str, Any], detail: str) -> str:
    """Return what hosts report of a version; equal reports appear once."""
    return ", ".join(sorted({str(host[detail]) for host in version["hosts"].values() if host.get(detail)}))


def _state(version: dict[str, Any]) -> str:
    return f"[{_STYLES.get(version['state'], 'default')}]{version['state']}[/]"


def _percent(share: float) -> str:
    return f"{share:g} %" if share else ""


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _table(title: str, columns: Sequence[str], rows: list[list[str]], right: Sequence[str]) -> Table:
    """Return a table without empty columns."""
    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    shown = [place for place, _ in enumerate(columns) if any(row[place] for row in rows)]
    for place in shown:
        made.add_column(columns[place], justify="right" if columns[place] in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(row[place] for place in shown))
    return made
