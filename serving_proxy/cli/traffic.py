# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy traffic`, `ramp` and `pause`."""

from __future__ import annotations

from typing import Annotated

import typer

from serving_proxy.cli.app import app, guarded
from serving_proxy.cli.options import (
    SERVER,
    AsJson,
    CaFile,
    Name,
    Server,
    TokenFile,
    VersionArgument,
    connect,
    print_json,
    seconds,
    shares,
)
from serving_proxy.cli.rendering import console, render_model

_TRAFFIC = """Split traffic between versions; what is not named goes to the baseline.

Nobody changes version without need: a share that grows keeps its users.

**Examples**

- `serving-proxy traffic ranking 4=10`
- `serving-proxy traffic ranking 3=90 4=10`
- `serving-proxy traffic ranking 4=0`
"""
_RAMP = """Move a version's share to a percentage, step by step.

The clock runs only while the version is ready, the model is not paused and the proxy is up.

**Examples**

- `serving-proxy ramp ranking 4 --to 50 --over 1h`
- `serving-proxy ramp ranking 4 --to 0 --over 10m`
"""
_PAUSE = """Send everything to the baseline, or let experiments go on.

**Examples**

- `serving-proxy pause ranking`
- `serving-proxy pause ranking --off`
"""


@app.command(name="traffic", help=_TRAFFIC)
@guarded
def traffic_command(
    name: Name,
    split: Annotated[list[str], typer.Argument(metavar="VERSION=PERCENT...", help="Version or label, and its share.")],
    server: Server = SERVER,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    weights = shares(split)
    with connect(server, token_file, ca_file) as client:
        model = client.traffic(name, weights)
    _show(model, as_json)


@app.command(name="ramp", help=_RAMP)
@guarded
def ramp_command(
    name: Name,
    version: VersionArgument,
    to: Annotated[float, typer.Option(metavar="PERCENT", min=0, max=100, help="The share at the end.")],
    over: Annotated[str, typer.Option(metavar="TIME", help="How long it takes: 30s, 15m, 1h.")],
    server: Server = SERVER,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    duration = seconds(over, "--over")
    with connect(server, token_file, ca_file) as client:
        model = client.ramp(name, version, to, duration)
    _show(model, as_json)


@app.command(name="pause", help=_PAUSE)
@guarded
def pause_command(
    name: Name,
    off: Annotated[bool, typer.Option("--off", metavar="", help="Let experiments go on.")] = False,
    server: Server = SERVER,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    with connect(server, token_file, ca_file) as client:
        model = client.pause(name, not off)
    _show(model, as_json)


def _show(model: dict[str, object], as_json: bool) -> None:
    if as_json:
        print_json(model)
    else:
        console().print(render_model(model))
