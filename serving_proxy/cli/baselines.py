# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy promote` and `rollback`."""

from __future__ import annotations

import time
from typing import Annotated, Any

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
)
from serving_proxy.cli.rendering import console, render_model
from serving_proxy.client import Client
from serving_proxy.errors import LateError, PreconditionError

_PROMOTE = """Make a version the baseline as soon as it is ready; the one before it stays warm for a roll-back.

**Examples**

- `serving-proxy promote ranking 4`
- `serving-proxy promote ranking 4 --wait --timeout 10m`
"""
_ROLLBACK = """Send everything to the last good baseline: no variant has traffic any more. It takes effect at once.

**Examples**

- `serving-proxy rollback ranking`
- `serving-proxy rollback ranking --json`
"""
_POLL_S = 0.2

WaitForIt = Annotated[bool, typer.Option("--wait", metavar="", help="Return once it is the baseline.")]
Timeout = Annotated[
    str | None, typer.Option(metavar="TIME", show_default=False, help="Wait at most so long: 30s, 15m, 1h.")
]


@app.command(name="promote", help=_PROMOTE)
@guarded
def promote_command(
    name: Name,
    version: VersionArgument,
    wait: WaitForIt = False,
    timeout: Timeout = None,
    server: Server = SERVER,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    limit = None if timeout is None else seconds(timeout, "--timeout")
    with connect(server, token_file, ca_file) as client:
        model = client.promote(name, version)
        if wait:
            model = _settled(client, model, version, limit)
    _show(model, as_json)


@app.command(name="rollback", help=_ROLLBACK)
@guarded
def rollback_command(
    name: Name,
    server: Server = SERVER,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    with connect(server, token_file, ca_file) as client:
        model = client.rollback(name)
    _show(model, as_json)


def _settled(client: Client, model: dict[str, Any], version: int, limit: float | None) -> dict[str, Any]:
    """Wait until a promotion has been done, or given up."""
    end = None if limit is None else time.monotonic() + limit
    while model["baseline"] != version:
        if model["candidate"] != version:
            reasons = [
                one["reason"] for one in model["versions"] if one["version"] == version and one["state"] != "ready"
            ]
            raise PreconditionError(
                f"{model['name']}/{version}: not promoted, {''.join(reasons) or 'another verb came'}"
            )
        if end is not None and time.monotonic() > end:
            raise LateError(
                f"{model['name']}/{version}: not ready in time, expected it to be; it is promoted once it is"
            )
        time.sleep(_POLL_S)
        model = client.versions(model["name"])
    return model


def _show(model: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(model)
    else:
        console().print(render_model(model))
