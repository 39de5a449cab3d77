# SPDX-License-Identifier: Apache-2.0
"""HandleReloadConfigRequest: refused, or forwarded to the proxy unchanged.

The response of the RPC is TensorFlow Serving's `ReloadConfigResponse`; an empty one means OK.
"""

from __future__ import annotations

from typing import Any

from serving_proxy.host.admin import Admin, hand_on_call

_ASKED = "HandleReloadConfigRequest", "--allow-reload-rpc"


class Reload:
    """Handles the RPC.

    Parameters
    ----------
    admin : Admin or None
        None: every request is refused.
    """

    def __init__(self, admin: Admin | None) -> None:
        self._admin = admin

    async def handle(self, data: bytes | bytearray, context: Any) -> bytes:
        """Handle one request; return once the new models are available."""
        return await hand_on_call(self._admin, _ASKED, "/v1/reload", data, context)
