# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy placement`, `endpoints` and `workload`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from serving_proxy.cli.app import remark
from serving_proxy.cli.commands import proxy_command, show
from serving_proxy.cli.options import Name, print_json
from serving_proxy.cli.rendering_placement import render_endpoints, render_placement
from serving_proxy.client import Client, Json
from serving_proxy.errors import InvalidError
from serving_proxy.system.files import read_regular

_HELP = """Show which machines have which models, or put a placement of `cost-model place --json` into force.

A model is loaded on its new machines before the others unload it. Models without an entry are on all machines.

**Examples**

- `serving-proxy placement`
- `serving-proxy placement placement.json --wait`
- `serving-proxy placement placement.json --handover 60`
- `serving-proxy placement --off`
"""
_ENDPOINTS = """Show the addresses of the hosts to which clients send requests for a model.

**Examples**

- `serving-proxy endpoints ranking`
- `serving-proxy endpoints ranking --json`
"""
_WORKLOAD = """Print a workload file for `cost-model place`, made of the rates and service times that were measured.

**Examples**

- `serving-proxy workload > workload.yaml`
- `serving-proxy workload --json > workload.yaml`
"""
_MOST_BYTES = 256 * 1024 * 1024


@proxy_command("placement", _HELP)
def placement_command(
    *,
    client: Client,
    as_json: bool,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", show_default=False, help="JSON of `cost-model place --json`.")
    ] = None,
    handover: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, max=86400, help="Time that machines keep a model that has moved.")
    ] = 30.0,
    wait: Annotated[bool, typer.Option("--wait", metavar="", help="Return once no model moves any more.")] = False,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, show_default=False, help="Longest time to wait.")
    ] = None,
    off: Annotated[bool, typer.Option("--off", metavar="", help="Put all models on all machines.")] = False,
) -> None:
    if file is not None and off:
        raise InvalidError(f"--off: with {file}, expected one of them")
    found = client.clear_placement() if off else client.placement()
    if file is not None:
        found = client.apply_placement(_read(file), handover)
    if wait:
        found = client.wait_for_placement(timeout)
    show(found, as_json, render_placement)


@proxy_command("endpoints", _ENDPOINTS, render_endpoints)
def endpoints_command(*, client: Client, name: Name) -> Json:
    return client.endpoints(name)


@proxy_command("workload", _WORKLOAD)
def workload_command(*, client: Client, as_json: bool) -> None:
    found = client.workload()
    for note in found["notes"]:
        remark(note)
    print_json(found["workload"])


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_regular(file, _MOST_BYTES, "a placement"))
    except (ValueError, RecursionError) as error:
        raise InvalidError(f"{file}: {error}, expected the JSON of `cost-model place --json`") from error
    if not isinstance(found, dict):
        raise InvalidError(f"{file}: not an object, expected the JSON of `cost-model place --json`")
    return found
