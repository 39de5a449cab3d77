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

_HELP = """Show the guard's verdicts on the versions of a model, or change the guard's limits.

If a variant is certain to exceed a limit, it loses its traffic; a new baseline is rolled back to the previous one.
Limits that are not given stay as they are; the value `none` removes a limit.

**Examples**

- `serving-proxy guard ranking`
- `serving-proxy guard ranking --error-percent 0.5 --window 5m --min-requests 1000`
- `serving-proxy guard ranking --min-correlation 0.98 --promote-after 30m`
- `serving-proxy guard ranking --action alert`
- `serving-proxy guard ranking --action epoch`
"""


@proxy_command("guard", _HELP)
@with_options(GuardSettings, defaults=False, shown_as="initially")
def guard_command(
    *,
    client: Client,
    name: Name,
    as_json: bool,
    given: dict[str, Any],
) -> None:
    show(client.guard(name, **given), as_json, lambda found: render_guard(name, found))
