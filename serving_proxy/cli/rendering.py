# SPDX-License-Identifier: Apache-2.0
"""The terminal's view of the proxy's responses; all of it is made from the JSON data."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from serving_proxy.counters.stats_file import live_text

_STYLES = {"ready": "green", "failed": "bold red", "draining": "yellow", "stopped": "dim", "away": "yellow"}
_WIDE = 140


def console() -> Console:
    """Make a console as wide as the terminal; in a pipe or a file, 140 wide."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=_WIDE)


def render_status(status: dict[str, Any]) -> RenderableType:
    """Return hosts, models and running jobs as tables."""
    parts: list[RenderableType] = []
    if status["fault"]:
        parts.append(Text.from_markup(f"[bold red]fault:[/] {escape(status['fault'])}"))
    parts += _machines(status["machines"]) if status.get("machines") else []
    parts += _placed(status["replicas"]) if status.get("replicas") else []
    parts += _hosts(status["hosts"]) if status["hosts"] else [Text(_no_host(status))]
    if status["models"]:
        parts += _models(status["models"], [host["name"] for host in status["hosts"] if host["alive"]])
    else:
        parts.append(Text("Nothing is deployed: `serving-proxy deploy NAME PATH`."))
    parts += [Text(f"{job['model']}/{job['version']}: {job['kind']}, {job['step']}") for job in status["jobs"]]
    return Group(*parts)


def _no_host(status: dict[str, Any]) -> str:
    """Return what there is instead of hosts."""
    if status.get("machines"):
        return "No host has reported: start hosts on the machines, with the agents' state directories."
    return "No host is running."


def render_model(model: dict[str, Any]) -> RenderableType:
    """Return the versions of a model as a table."""
    return Group(*_model(model))


def render_versions(model: dict[str, Any]) -> RenderableType:
    """Return the versions of a model as a table, with their files below it."""
    rows = [
        [
            str(version["version"]),
            "" if version["bytes"] is None else _bytes(version["bytes"]),
            (version["sha256"] or "")[:12],
            version["source"] + (f" (optimized, {version['optimize']})" if version["optimize"] else ""),
        ]
        for version in model["versions"]
    ]
    return Group(*_model(model), Text("Files", style="bold"), *_lines(rows))


def _model(model: dict[str, Any]) -> list[RenderableType]:
    columns = ("version", "state", "role", "traffic", "shadow", "labels", "since", "precision")
    rows = [
        [
            str(version["version"]),
            _state(version),
            version["role"],
            _percent(version["traffic"]),
            _percent(version["shadow"]),
            ", ".join(version["labels"]),
            _day_or_time(version["since"]),
            _on_hosts(version, "precision"),
        ]
        for version in model["versions"]
    ]
    title = model["name"] + (", paused" if model["paused"] else "")
    return [table(title, columns, rows, right=("version", "traffic", "shadow")), *notes(_remarks(model))]


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
    return Group(text, table("Verdicts", columns, rows, right=("version", "requests", "errors", "p99")))


def render_request_log(name: str, found: dict[str, Any]) -> RenderableType:
    """Return the request log of a model."""
    sample = found["sample"]
    share = "none" if sample is None else f"{sample:g} %"
    written = f"{_bytes(found['bytes'])} in {len(found['files'])} file{'' if len(found['files']) == 1 else 's'}"
    text = Text(f"{name}: {share} of the requests recorded; {written}")
    rows = [[clock(file["began"]), file["host"], _bytes(file["bytes"]), file["path"]] for file in found["files"]]
    return Group(text, *_lines(rows), *(notes(list(found["missing"].items())) if found["missing"] else ()))


def clock(at: float) -> str:
    """Return a time as text, in the user's time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _machines(machines: list[dict[str, Any]]) -> list[RenderableType]:
    columns = ("machine", "state", "hosts", "term", "generation", "cpus", "memory")
    rows = [
        [
            escape(machine["name"]),
            machine["state"],
            str(len(machine["hosts"])),
            str(machine["term"]),
            str(machine["generation"]),
            str(machine["cpus"] or ""),
            _bytes(machine["memory_bytes"]) if machine["memory_bytes"] else "",
        ]
        for machine in machines
    ]
    right = ("hosts", "term", "generation", "cpus", "memory")
    reasons = [(machine["name"], machine["reason"]) for machine in machines]
    return [table("Machines", columns, rows, right=right), *notes(reasons)]


def _placed(found: dict[str, Any]) -> list[RenderableType]:
    columns = ("replica", "state", "node", "cores", "restarts", "options")
    rows = [
        [
            escape(replica["name"]),
            f"[{_STYLES.get(replica['state'], 'default')}]{replica['state']}[/]",
            escape(replica["node"]),
            replica["cores"],
            str(replica["restarts"] or ""),
            "current" if replica["current"] else "old",
        ]
        for replica in found["replicas"]
    ]
    remarks = [(replica["name"], replica["note"]) for replica in found["replicas"]]
    remarks += [(node["address"], "is being drained") for node in found["nodes"] if node["draining"]]
    remarks.append(("engine", found["fault"] or ""))
    # A title of the table would be as narrow as the table, and vanish without replicas.
    head = Text(f"Replicas, {found['ready']} ready of {found['wanted']} ({found['reason']})", style="bold")
    return [head, *([table("", columns, rows, right=("restarts",))] if rows else []), *notes(remarks)]


def _hosts(hosts: list[dict[str, Any]]) -> list[RenderableType]:
    columns = ("host", "state", "origin", "release", "pid", "generation", "cpus", "restarts")
    rows = [
        [
            escape(host["name"]),
            f"[{_STYLES.get(host['state'], 'default')}]{host['state']}[/]",
            host["origin"],
            host.get("version", ""),
            str(host["pid"] or ""),
            str(host["generation"]),
            host["cpus"],
            str(host["restarts"] or ""),
        ]
        for host in hosts
    ]
    remarks = []
    for host in hosts:
        remarks.append((host["name"], ", ".join(f"{name} {place}" for name, place in host["endpoints"].items())))
        remarks.append((host["name"], host["note"]))
    return [table("Hosts", columns, rows, right=("pid", "generation", "restarts")), *notes(remarks)]


def _models(models: list[dict[str, Any]], live_hosts: Sequence[str]) -> list[RenderableType]:
    columns = ("version", "state", "role", "traffic", "shadow", "labels", "replicas", "in flight", "cpus", "precision")
    rows = [
        [
            escape(f"{model['name']}/{version['version']}"),
            _state(version),
            version["role"],
            _percent(version["traffic"]),
            _percent(version["shadow"]),
            ", ".join(version["labels"]),
            _replicas(version, live_hosts),
            str(sum(host.get("in_flight", 0) for host in version["hosts"].values()) or ""),
            _on_hosts(version, "cpuset"),
            _on_hosts(version, "precision"),
        ]
        for model in models
        for version in model["versions"]
    ]
    remarks = [note for model in models for note in _remarks(model)]
    return [table("Models", columns, rows, right=("traffic", "shadow", "replicas", "in flight")), *notes(remarks)]


def _replicas(version: dict[str, Any], live_hosts: Sequence[str]) -> str:
    """Return on how many of the hosts that are to have it a version is ready, if there are several hosts."""
    machines = version.get("machines")
    if machines is None:
        ready = sum(host.get("state") == "ready" for host in version["hosts"].values())
        return f"{ready} of {len(live_hosts)}" if len(live_hosts) > 1 else ""
    # A machine without a live host lacks a replica.
    wanted = [[host for host in live_hosts if host.partition("/")[0] == machine] or [machine] for machine in machines]
    names = [name for hosts in wanted for name in hosts]
    ready = sum(version["hosts"].get(name, {}).get("state") == "ready" for name in names)
    return f"{ready} of {len(names)}"


def _remarks(model: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what needs a sentence: a pause, ramps, and the reasons for the states of versions."""
    found = [(model["name"], "paused, all requests go to the baseline")] if model["paused"] else []
    for version in model["versions"]:
        name = f"{model['name']}/{version['version']}"
        targets = [ramp["to"] for ramp in model["ramps"] if ramp["version"] == version["version"]]
        found += [(name, f"ramp of the traffic to {target:g} %") for target in targets]
        found.append((name, version["reason"]))
        texts = {live_text(host["live"], version["epoch"], version["reason"]) for host in _following(version)}
        found += [(name, text) for text in sorted(texts)]
    return found


def _following(version: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the reports of hosts on which a version follows a timeline."""
    return [host for host in version["hosts"].values() if host.get("live")]


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


def _day_or_time(at: float) -> str:
    """Return the time of day if it is today, otherwise the date: short enough for narrow tables."""
    day, time_of_day = clock(at).split(" ")
    return time_of_day if day == clock(time.time()).split(" ")[0] else day


def table(
    title: str,
    columns: Sequence[str],
    rows: list[list[str]],
    right: Sequence[str],
    wrapped: Sequence[str] = ("labels", "in flight", "because"),
) -> Table:
    """Return a table of short cells, without empty columns; on a narrow terminal, only the cells of some columns are
    wrapped.
    """
    made = Table(
        title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    made.pad_edge = made.show_edge = False
    shown = [place for place, _ in enumerate(columns) if any(row[place] for row in rows)]
    for place in shown:
        name = columns[place]
        justify: Literal["left", "right"] = "right" if name in right else "left"
        made.add_column(name, justify=justify, overflow="fold", no_wrap=name not in wrapped)
    for row in rows:
        made.add_row(*(row[place] for place in shown))
    return made


def notes(found: Sequence[tuple[str, str]]) -> list[RenderableType]:
    """Return sentences that are too long for the cells of a table, each after the name that it is about."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in found:
        if text:
            grid.add_row(escape(name), escape(text))
    return [grid, Text()] if grid.row_count else [Text()]


def _lines(rows: Sequence[Sequence[str]]) -> list[RenderableType]:
    """Return rows as aligned lines; the last cells, which are paths, are never broken, so that they can be copied."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return [
        Text(
            "  ".join([*(cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=True)), row[-1]]),
            no_wrap=True,
            overflow="ignore",
        )
        for row in rows
    ]
