# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy drain`."""

from __future__ import annotations

from typing import Annotated

import typer

from serving_proxy.cli.commands import proxy_command, show
from serving_proxy.cli.rendering import render_status
from serving_proxy.client import Client
from serving_proxy.errors import InvalidError

_HELP = """Stop the hosts for maintenance, after their requests in flight have ended; models stay deployed.

Hosts that were not started by this proxy are not affected. A restart of the proxy starts its hosts again.

With `--engine agents` or `ray` the hosts of machines are drained: they end in order, and are not ready until
`drain --off`, even if what runs them starts them again.

**Examples**

- `serving-proxy drain`
- `serving-proxy drain host-1`
- `serving-proxy drain machine-7`
- `serving-proxy drain machine-7/host-0`
- `serving-proxy drain --off`
"""


@proxy_command("drain", _HELP)
def drain_command(
    *,
    client: Client,
    as_json: bool,
    name: Annotated[
        str | None, typer.Argument(metavar="[HOST|MACHINE|MACHINE/HOST]", help="What to drain; by default everything.")
    ] = None,
    host: Annotated[str | None, typer.Option(metavar="ID", show_default=False, help="Drain only this host.")] = None,
    off: Annotated[bool, typer.Option("--off", metavar="", help="Start the hosts again.")] = False,
) -> None:
    if name is not None and host is not None:
        raise InvalidError(f"--host {host}: in addition to '{name}', expected one of them")
    show(client.drain(name or host, not off), as_json, lambda _: render_status(client.status()))
