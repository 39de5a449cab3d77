# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy drain`."""

from __future__ import annotations

from typing import Annotated

import typer

from serving_proxy.cli.commands import proxy_command, show
from serving_proxy.cli.rendering import render_status
from serving_proxy.client import Client

_HELP = """Stop the hosts for maintenance, after their requests in flight have ended; models stay deployed.

Hosts that were not started by this proxy are not affected. A restart of the proxy starts its hosts again.

**Examples**

- `serving-proxy drain`
- `serving-proxy drain --host host-1`
- `serving-proxy drain --off`
"""


@proxy_command("drain", _HELP)
def drain_command(
    *,
    client: Client,
    as_json: bool,
    host: Annotated[str | None, typer.Option(metavar="ID", show_default=False, help="Drain only this host.")] = None,
    off: Annotated[bool, typer.Option("--off", metavar="", help="Start the hosts again.")] = False,
) -> None:
    show(client.drain(host, not off), as_json, lambda _: render_status(client.status()))
