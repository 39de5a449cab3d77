# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy status`, `versions`, `explain` and `events`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.live import Live

from serving_proxy.cli.app import app, guarded
from serving_proxy.cli.options import SERVER, AsJson, CaFile, Name, Server, TokenFile, connect, print_json
from serving_proxy.cli.rendering import (
    console,
    event_line,
    render_events,
    render_explain,
    render_model,
    render_status,
)
from serving_proxy.client import Client

_STATUS = """Show hosts, models, their versions with states and shares, and what is being done.

**Examples**

- `serving-proxy status`
- `serving-proxy status --watch`
"""
_VERSIONS = """Show every version of a model, also those that were undeployed, with where they came from.

**Examples**

- `serving-proxy versions ranking`
- `serving-proxy versions ranking --json`
"""
_EXPLAIN = """Say why a model is as it is: who gets which requests, what waits for what, and why a version failed.

**Examples**

- `serving-proxy explain ranking`
- `serving-proxy explain ranking --json`
"""
_EVENTS = """Show what has happened, the newest last.

**Examples**

- `serving-proxy events --model ranking --limit 20`
- `serving-proxy events --follow`
"""


@app.command(name="status", help=_STATUS)
@guarded
def status_command(
    watch: Annotated[bool, typer.Option("--watch", "-w", metavar="", help="Go on until Ctrl-C.")] = False,
    server: Server = SERVER,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    with connect(server, token_file, ca_file) as client:
        if watch:
            _watch(client, as_json)
        elif as_json:
            print_json(client.status())
        else:
            console().print(render_status(client.status()))


@app.command(name="versions", help=_VERSIONS)
@guarded
def versions_command(
    name: Name,
    server: Server = SERVER,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    with connect(server, token_file, ca_file) as client:
        model = client.versions(name)
    if as_json:
        print_json(model)
    else:
        console().print(render_model(model))


@app.command(name="explain", help=_EXPLAIN)
@guarded
def explain_command(
    name: Name,
    server: Server = SERVER,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    with connect(server, token_file, ca_file) as client:
        found = client.explain(name)
    if as_json:
        print_json(found)
    else:
        console().print(render_explain(found), soft_wrap=True)


@app.command(name="events", help=_EVENTS)
@guarded
def events_command(
    model: Annotated[str | None, typer.Option(metavar="NAME", show_default=False, help="Of one model only.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="So many.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", metavar="", help="Go on until Ctrl-C.")] = False,
    server: Server = SERVER,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    with connect(server, token_file, ca_file) as client:
        found = client.events(model=model, limit=limit)
        if as_json and not follow:
            print_json(found)
        elif found and not as_json:
            console().print(render_events(found), soft_wrap=True)
        if follow:
            _follow(client, found, model, as_json)


def _watch(client: Client, as_json: bool) -> None:
    """Show the status as it changes; as JSON, a line each."""
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
