# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy drain`."""

from __future__ import annotations

from typing import Annotated

import typer

from serving_proxy.cli.app import app, guarded
from serving_proxy.cli.options import SERVER, AsJson, CaFile, Server, TokenFile, connect, print_json
from serving_proxy.cli.rendering import console, render_status

_HELP = """Stop hosts after their last requests, for maintenance; what is deployed stays so.

Hosts that somebody else has started are left alone. A proxy that starts anew starts its hosts.

**Examples**

- `serving-proxy drain`
- `serving-proxy drain --host host-1`
- `serving-proxy drain --off`
"""


@app.command(name="drain", help=_HELP)
@guarded
def drain_command(
    host: Annotated[str | None, typer.Option(metavar="ID", show_default=False, help="One host only.")] = None,
    off: Annotated[bool, typer.Option("--off", metavar="", help="Start them again.")] = False,
    server: Server = SERVER,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    with connect(server, token_file, ca_file) as client:
        hosts = client.drain(host, not off)
        if as_json:
            print_json(hosts)
        else:
            console().print(render_status(client.status()))
