# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy status`, `versions`, `explain` and `events`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.live import Live

from serving_proxy.cli.commands import proxy_command, show
from serving_proxy.cli.options import Name
from serving_proxy.cli.rendering import (
    console,
    event_line,
    render_events,
    render_explain,
    render_status,
    render_versions,
)
from serving_proxy.client import Client, Json

_STATUS = """Show the hosts, the models with the state and the traffic of each version, and the running jobs.

**Examples**

- `serving-proxy status`
- `serving-proxy status --watch`
"""
_VERSIONS = """Show all versions of a model, including undeployed ones, with their sources.

**Examples**

- `serving-proxy versions ranking`
- `serving-proxy versions ranking --json`
"""
_EXPLAIN = """Explain the state of a model: which version gets which requests, what it waits for, and why it failed.

**Examples**

- `serving-proxy explain ranking`
- `serving-proxy explain ranking --json`
"""
_EVENTS = """Show the events of the proxy, newest last.

**Examples**

- `serving-proxy events --model ranking --limit 20`
- `serving-proxy events --follow`
"""


@proxy_command("status", _STATUS)
def status_command(
    *,
    client: Client,
    as_json: bool,
    watch: Annotated[bool, typer.Option("--watch", "-w", metavar="", help="Refresh the output until Ctrl-C.")] = False,
) -> None:
    if watch:
        _watch(client, as_json)
    else:
        show(client.status(), as_json, render_status)


@proxy_command("versions", _VERSIONS, render_versions)
def versions_command(
    *,
    client: Client,
    name: Name,
) -> Json:
    return client.versions(name)


@proxy_command("explain", _EXPLAIN, render_explain, soft_wrap=True)
def explain_command(
    *,
    client: Client,
    name: Name,
) -> Json:
    return client.explain(name)


@proxy_command("events", _EVENTS)
def events_command(
    *,
    client: Client,
    as_json: bool,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", show_default=False, help="Show only the events of this model.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Number of events to show.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", metavar="", help="Print new events until Ctrl-C.")] = False,
) -> None:
    found = client.events(model=model, limit=limit)
    if (found and not as_json) or (as_json and not follow):
        show(found, as_json, render_events, soft_wrap=True)
    if follow:
        _follow(client, found, model, as_json)


def _watch(client: Client, as_json: bool) -> None:
    """Show the status whenever it changes; as JSON, a line each."""
    if as_json:
        for _, status in client.stream("status"):
            typer.echo(json.dumps(status))
        return
    with Live(console=console(), auto_refresh=False) as live:
        for _, status in client.stream("status"):
            live.update(render_status(status), refresh=True)


def _follow(client: Client, found: list[dict[str, Any]], model: str | None, as_json: bool) -> None:
    last = found[-1]["id"] if found else 0
    for event in found if as_json else []:
        typer.echo(json.dumps(event))
    for _, event in client.stream("events", after=last):
        if model is None or event["model"] == model:
            typer.echo(json.dumps(event) if as_json else event_line(event))
