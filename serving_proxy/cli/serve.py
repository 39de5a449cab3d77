# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy serve`."""

from __future__ import annotations

from typing import Any

from serving_proxy.cli.app import app, guarded
from serving_proxy.cli.declared import settings_of, with_options
from serving_proxy.serve.options import ServeOptions

_HELP = """Run the proxy: it starts the hosts, and the other commands connect to its admin port.

All state is in the state directory: after a crash, the same command restores what was deployed. Each option can also be
set as an environment variable, for example SERVING_PROXY_ADMIN_PORT.

**Examples**

- `serving-proxy serve --state-dir /var/lib/recprocessor --model-root /models`
- `serving-proxy serve --state-dir state --host go --cpus 0-3 --config models.config`
- `serving-proxy serve --state-dir state --host none`
"""


@app.command(name="serve", help=_HELP)
@guarded
@with_options(ServeOptions, defaults=False)
def serve_command(*, given: dict[str, Any]) -> None:
    # These imports take longer than most other commands.
    from serving_proxy.serve.process import serve
    from serving_proxy.serve.settings import ServeSettings
    from serving_proxy.system.logs import set_up

    settings = settings_of(ServeSettings, given)
    set_up(settings.log_level)
    serve(settings)
