# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy traffic`, `ramp` and `pause`."""

from __future__ import annotations

from typing import Annotated

import typer

from serving_proxy.cli.commands import proxy_command
from serving_proxy.cli.options import Name, VersionArgument, seconds, shares
from serving_proxy.cli.rendering import render_model
from serving_proxy.client import Client, Json

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


@proxy_command("traffic", _TRAFFIC, render_model)
def traffic_command(
    *,
    client: Client,
    name: Name,
    split: Annotated[list[str], typer.Argument(metavar="VERSION=PERCENT...", help="Version or label, and its share.")],
) -> Json:
    weights = shares(split)
    return client.traffic(name, weights)


@proxy_command("ramp", _RAMP, render_model)
def ramp_command(
    *,
    client: Client,
    name: Name,
    version: VersionArgument,
    to: Annotated[float, typer.Option(metavar="PERCENT", min=0, max=100, help="The share at the end.")],
    over: Annotated[str, typer.Option(metavar="TIME", help="How long it takes: 30s, 15m, 1h.")],
) -> Json:
    duration = seconds(over, "--over")
    return client.ramp(name, version, to, duration)


@proxy_command("pause", _PAUSE, render_model)
def pause_command(
    *,
    client: Client,
    name: Name,
    off: Annotated[bool, typer.Option("--off", metavar="", help="Let experiments go on.")] = False,
) -> Json:
    return client.pause(name, not off)
