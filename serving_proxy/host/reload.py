# SPDX-License-Identifier: Apache-2.0
"""HandleReloadConfigRequest: refused, or handed to the proxy as it came.

The answer of the RPC is TensorFlow Serving's `ReloadConfigResponse`, which says OK if it is empty.
"""

from __future__ import annotations

from typing import Any

import grpc

from serving_proxy.host.admin import PROTOBUF, Admin

_OK = b""


class Reload:
    """Handler of the RPC.

    Parameters
    ----------
    admin : Admin or None
        None refuses every request.
    """

    def __init__(self, admin: Admin | None) -> None:
        self._admin = admin

    async def handle(self, data: bytes, context: Any) -> bytes:
        """Answer one request, once the models that are new are available."""
        if self._admin is None:
            context.set_code(grpc.StatusCode.PERMISSION_DENIED)
            context.set_details("HandleReloadConfigRequest: off on this host, expected --allow-reload-rpc")
            return _OK
        code, message = await self._admin.post("/v1/reload", data, PROTOBUF, context.time_remaining())
        if code is not grpc.StatusCode.OK:
            context.set_code(code)
            context.set_details(message)
        return _OK
