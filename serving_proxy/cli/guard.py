# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy guard`."""

from __future__ import annotations

from typing import Any

from serving_proxy.cli.app import app, guarded
from serving_proxy.cli.declared import with_options
from serving_proxy.cli.options import SERVER, AsJson, CaFile, Name, Server, TokenFile, connect, print_json
from serving_proxy.cli.rendering import console, render_guard
from serving_proxy.records.guard_settings import GuardSettings

_HELP = """Show what the guard says of a model's versions, or change its limits.

A version that exceeds one, for certain, loses its traffic; a new baseline goes back to the one before. What is not
given stays as it is; `none` takes a limit away.

**Examples**

- `serving-proxy guard ranking`
- `serving-proxy guard ranking --error-percent 0.5 --window 5m --min-requests 1000`
- `serving-proxy guard ranking --min-correlation 0.98 --promote-after 30m`
- `serving-proxy guard ranking --action alert`
"""


@app.command(name="guard", help=_HELP)
@guarded
@with_options(GuardSettings, defaults=False)
def guard_command(
    *,
    name: Name,
    server: Server = SERVER,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
    given: dict[str, Any],
) -> None:
    with connect(server, token_file, ca_file) as client:
        found = client.guard(name, **given)
    if as_json:
        print_json(found)
    else:
        console().print(render_guard(name, found))
