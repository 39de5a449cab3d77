# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy agent`."""

from __future__ import annotations

from typing import Any

from serving_proxy.agent.options import AgentOptions
from serving_proxy.cli.app import app, guarded
from serving_proxy.cli.declared import settings_of, with_options

_HELP = """Run the agent of a machine: it follows a proxy that was started with --engine agents.

The hosts of the machine serve its state directory, and keep serving while the agent or the proxy is down. Each option
can also be set as an environment variable, for example SERVING_PROXY_AGENT_MACHINE.

**Examples**

- `serving-proxy agent --server https://proxy:8502 --state-dir state --token-file token --ca-file ca.pem`
- `serving-proxy agent --server https://proxy-0:8502 --server https://proxy-1:8502 --state-dir state`
"""


@app.command(name="agent", help=_HELP)
@guarded
@with_options(AgentOptions, defaults=False)
def agent_command(*, given: dict[str, Any]) -> None:
    # These imports take longer than most other commands.
    from serving_proxy.agent.process import run_agent
    from serving_proxy.agent.settings import AgentSettings
    from serving_proxy.system.logs import set_up

    settings = settings_of(AgentSettings, given)
    set_up(settings.log_level)
    run_agent(settings)
