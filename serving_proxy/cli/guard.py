# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy guard`."""

from __future__ import annotations

from typing import Any

from serving_proxy.cli.commands import proxy_command, show
from serving_proxy.cli.declared import with_options
from serving_proxy.cli.options import Name
from serving_proxy.cli.rendering import render_guard
from serving_proxy.client import Client
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


@proxy_command("guard", _HELP)
@with_options(GuardSettings, defaults=False)
def guard_command(
    *,
    client: Client,
    name: Name,
    as_json: bool,
    given: dict[str, Any],
) -> None:
    show(client.guard(name, **given), as_json, lambda found: render_guard(name, found))
