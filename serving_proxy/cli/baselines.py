# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy promote` and `rollback`."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from serving_proxy.cli.commands import proxy_command
from serving_proxy.cli.options import Name, Timeout, VersionArgument, seconds
from serving_proxy.cli.rendering import render_model
from serving_proxy.client import Client, Json
from serving_proxy.errors import InvalidError, LateError, PreconditionError

_PROMOTE = """Make a version the baseline as soon as it is ready; the previous baseline stays loaded for a rollback.

**Examples**

- `serving-proxy promote ranking 4`
- `serving-proxy promote ranking 4 --wait --timeout 10m`
"""
_ROLLBACK = """Return to the last good baseline at once: it gets all requests, and no variant gets any.

With --epoch, hold a version that follows a timeline at one of its last epochs, until --resume.

**Examples**

- `serving-proxy rollback ranking`
- `serving-proxy rollback ranking --epoch 4711`
- `serving-proxy rollback ranking --resume`
- `serving-proxy rollback ranking --json`
"""
_POLL_S = 0.2

WaitForIt = Annotated[bool, typer.Option("--wait", metavar="", help="Wait until the version is the baseline.")]


@proxy_command("promote", _PROMOTE, render_model)
def promote_command(
    *,
    client: Client,
    name: Name,
    version: VersionArgument,
    wait: WaitForIt = False,
    timeout: Timeout = None,
) -> Json:
    limit = None if timeout is None else seconds(timeout, "--timeout")
    model = client.promote(name, version)
    return _wait_for_promotion(client, model, version, limit) if wait else model


@proxy_command("rollback", _ROLLBACK, render_model)
def rollback_command(
    *,
    client: Client,
    name: Name,
    epoch: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, show_default=False, help="Hold the version at this epoch of its timeline."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", metavar="", help="Follow the newest epoch again.")] = False,
    version: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, show_default=False, help="With --epoch or --resume; default: the baseline."),
    ] = None,
) -> Json:
    if resume and epoch is not None:
        raise InvalidError("--epoch and --resume: expected one of them")
    if version is not None and epoch is None and not resume:
        raise InvalidError("--version: expected --epoch or --resume with it")
    return client.resume(name, version) if resume else client.rollback(name, epoch, version)


def _wait_for_promotion(client: Client, model: dict[str, Any], version: int, limit: float | None) -> dict[str, Any]:
    """Wait until a version is the baseline, or its promotion was given up."""
    end = None if limit is None else time.monotonic() + limit
    while model["baseline"] != version:
        if model["candidate"] != version:
            reasons = [
                entry["reason"]
                for entry in model["versions"]
                if entry["version"] == version and entry["state"] != "ready"
            ]
            raise PreconditionError(
                f"{model['name']}/{version}: not promoted, {''.join(reasons) or 'another command came first'}"
            )
        if end is not None and time.monotonic() > end:
            raise LateError(
                f"{model['name']}/{version}: not ready within the time limit; the proxy promotes it once it is ready"
            )
        time.sleep(_POLL_S)
        model = client.versions(model["name"])
    return model
