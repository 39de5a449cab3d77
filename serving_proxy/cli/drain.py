# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy drain`."""

from __future__ import annotations

from typing import Annotated

import typer

from serving_proxy.cli.commands import proxy_command, show
from serving_proxy.cli.rendering import render_status
from serving_proxy.client import Client

_HELP = """Stop hosts after their last requests, for maintenance; what is deployed stays so.

Hosts that somebody else has started are left alone. A proxy that starts anew starts its hosts.

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
    host: Annotated[str | None, typer.Option(metavar="ID", show_default=False, help="One host only.")] = None,
    off: Annotated[bool, typer.Option("--off", metavar="", help="Start them again.")] = False,
) -> None:
    show(client.drain(host, not off), as_json, lambda _: render_status(client.status()))
