# SPDX-License-Identifier: Apache-2.0
"""RepositoryModelLoad and RepositoryModelUnload of the Open Inference Protocol: refused, or forwarded to the proxy.

The proxy decides which models are served: a host that loaded one on its own would unload it at the next change.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from serving_proxy.host.admin import JSON, Admin, Outcome, hand_on, hand_on_call

_PATH = "/v1/repository"
_OPTION = "--allow-model-control"


class ModelControl:
    """Handles both requests, over gRPC and HTTP.

    Parameters
    ----------
    admin : Admin or None
        None: every request is refused.
    """

    def __init__(self, admin: Admin | None) -> None:
        self._admin = admin

    async def handle_load(self, data: bytes | bytearray, context: Any) -> bytes:
        """Handle a RepositoryModelLoadRequest; return once the model is available."""
        return await self._handle("load", data, context)

    async def handle_unload(self, data: bytes | bytearray, context: Any) -> bytes:
        """Handle a RepositoryModelUnloadRequest."""
        return await self._handle("unload", data, context)

    async def _handle(self, verb: str, data: bytes | bytearray, context: Any) -> bytes:
        asked = f"model {verb}", _OPTION
        return await hand_on_call(self._admin, asked, f"{_PATH}/{verb}", data, context)

    async def over_http(self, verb: str, model: str, body: bytes, seconds: float | None) -> Outcome:
        """Return status and message of a request whose path names a model.

        Parameters
        ----------
        body : bytes
            JSON, or empty.
        """
        asked = f"model {verb}", _OPTION
        path = f"{_PATH}/{verb}?model={quote(model, safe='')}"
        return await hand_on(self._admin, asked, path, body, JSON, seconds)
