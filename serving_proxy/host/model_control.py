# SPDX-License-Identifier: Apache-2.0
"""RepositoryModelLoad and RepositoryModelUnload of the Open Inference Protocol: refused, or handed to the proxy.

What is served is decided there: a host that loaded by itself would be told to unload at the next change.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import grpc

from serving_proxy.host.admin import JSON, PROTOBUF, Admin, Outcome

_OFF = "off on this host, expected --allow-model-control"


class ModelControl:
    """Handler of both, over gRPC and HTTP.

    Parameters
    ----------
    admin : Admin or None
        None refuses every request.
    """

    def __init__(self, admin: Admin | None) -> None:
        self._admin = admin

    async def handle_load(self, data: bytes, context: Any) -> bytes:
        """Answer a RepositoryModelLoadRequest, once the model is available."""
        return await self._handle("load", data, context)

    async def handle_unload(self, data: bytes, context: Any) -> bytes:
        """Answer a RepositoryModelUnloadRequest."""
        return await self._handle("unload", data, context)

    async def _handle(self, verb: str, data: bytes, context: Any) -> bytes:
        code, message = await self._post(verb, "", data, PROTOBUF, context.time_remaining())
        if code is not grpc.StatusCode.OK:
            context.set_code(code)
            context.set_details(message)
        return b""

    async def over_http(self, verb: str, model: str, body: bytes, seconds: float | None) -> Outcome:
        """Return status and message of a request whose path names a model.

        Parameters
        ----------
        body : bytes
            JSON, or nothing.
        """
        return await self._post(verb, f"?model={quote(model, safe='')}", body, JSON, seconds)

    async def _post(self, verb: str, query: str, data: bytes, kind: str, seconds: float | None) -> Outcome:
        if self._admin is None:
            return grpc.StatusCode.PERMISSION_DENIED, f"model {verb}: {_OFF}"
        return await self._admin.post(f"/v1/repository/{verb}{query}", data, kind, seconds)
