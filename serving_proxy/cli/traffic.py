# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy traffic`, `ramp` and `pause`."""

from __future__ import annotations

from typing import Annotated

import typer

from serving_proxy.cli.commands import proxy_command
from serving_proxy.cli.options import Name, VersionArgument, seconds, shares
from serving_proxy.cli.rendering import render_model
from serving_proxy.client import Client, Json

_TRAFFIC = """Split the traffic of a model between its versions; the rest goes to the baseline.

Users keep their version where possible: a share that grows keeps the users that it had.

**Examples**

- `serving-proxy traffic ranking 4=10`
- `serving-proxy traffic ranking 3=90 4=10`
- `serving-proxy traffic ranking 4=0`
"""
_RAMP = """Move the traffic of a version to a percentage in small steps.

The time counts only while the version is ready, the model is not paused and the proxy is running.

**Examples**

- `serving-proxy ramp ranking 4 --to 50 --over 1h`
- `serving-proxy ramp ranking 4 --to 0 --over 10m`
"""
_PAUSE = """Pause the experiments of a model: all requests go to the baseline. With --off, resume them.

**Examples**

- `serving-proxy pause ranking`
- `serving-proxy pause ranking --off`
"""


@proxy_command("traffic", _TRAFFIC, render_model)
def traffic_command(
    *,
    client: Client,
    name: Name,
    split: Annotated[
        list[str],
        typer.Argument(metavar="VERSION=PERCENT...", help="A version or label, and its percentage of the traffic."),
    ],
) -> Json:
    weights = shares(split)
    return client.traffic(name, weights)


@proxy_command("ramp", _RAMP, render_model)
def ramp_command(
    *,
    client: Client,
    name: Name,
    version: VersionArgument,
    to: Annotated[float, typer.Option(metavar="PERCENT", min=0, max=100, help="Percentage of the traffic at the end.")],
    over: Annotated[str, typer.Option(metavar="TIME", help="Duration of the ramp, such as 30s, 15m or 1h.")],
) -> Json:
    duration = seconds(over, "--over")
    return client.ramp(name, version, to, duration)


@proxy_command("pause", _PAUSE, render_model)
def pause_command(
    *,
    client: Client,
    name: Name,
    off: Annotated[bool, typer.Option("--off", metavar="", help="Resume the experiments.")] = False,
) -> Json:
    return client.pause(name, not off)
