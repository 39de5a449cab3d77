# SPDX-License-Identifier: Apache-2.0
"""HandleReloadConfigRequest: refused, or handed to the proxy as it came.

The answer of the RPC is TensorFlow Serving's `ReloadConfigResponse`, which says OK if it is empty.
"""

from __future__ import annotations

from typing import Any

from serving_proxy.host.admin import Admin, hand_on_call

_ASKED = "HandleReloadConfigRequest", "--allow-reload-rpc"


class Reload:
    """Handler of the RPC.

    Parameters
    ----------
    admin : Admin or None
        None refuses every request.
    """

    def __init__(self, admin: Admin | None) -> None:
        self._admin = admin

    async def handle(self, data: bytes | bytearray, context: Any) -> bytes:
        """Answer one request, once the models that are new are available."""
        return await hand_on_call(self._admin, _ASKED, "/v1/reload", data, context)
