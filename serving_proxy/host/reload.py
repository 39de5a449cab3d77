# SPDX-License-Identifier: Apache-2.0
"""HandleReloadConfigRequest: refused, or handed to the proxy as it came.

The proxy's answer is a status and a text; that of the RPC is TensorFlow Serving's `ReloadConfigResponse`, which says OK
if it is empty.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import grpc

_SECONDS = 30.0
_MOST_BYTES = 1024 * 1024
_CONTENT_TYPE = "application/x-protobuf"
_OK = b""


class Reload:
    """Handler of the RPC.

    Parameters
    ----------
    admin : str or None
        URL of the proxy's admin API; None refuses every request.
    token_file : Path, optional
        Read at every request, so that a new token needs no restart.
    """

    def __init__(self, admin: str | None, token_file: Path | None) -> None:
        self._url = None if admin is None else f"{admin.rstrip('/')}/v1/reload"
        self._token_file = token_file

    async def handle(self, data: bytes, context: Any) -> bytes:
        """Answer one request."""
        if self._url is None:
            context.set_code(grpc.StatusCode.PERMISSION_DENIED)
            context.set_details("HandleReloadConfigRequest: off on this host, expected --allow-reload-rpc")
            return b""
        code, message = await asyncio.to_thread(self._forward, data)
        if code is not grpc.StatusCode.OK:
            context.set_code(code)
            context.set_details(message)
        return _OK

    def _forward(self, data: bytes) -> tuple[grpc.StatusCode, str]:
        headers = {"Content-Type": _CONTENT_TYPE}
        try:
            if self._token_file is not None:
                headers["Authorization"] = f"Bearer {self._token_file.read_text(encoding='ascii').strip()}"
            request = urllib.request.Request(self._url or "", data, headers, method="POST")
            with _OPENER.open(request, timeout=_SECONDS):
                return grpc.StatusCode.OK, ""
        except urllib.error.HTTPError as error:
            with error:
                return _refusal(error.code, error.read(_MOST_BYTES))
        except (OSError, ValueError) as error:
            return grpc.StatusCode.UNAVAILABLE, f"proxy: {error}, expected its admin API"


# The admin API is on this machine or named by the operator: no proxy of the environment stands between.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_BY_HTTP = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}


def _refusal(http: int, body: bytes) -> tuple[grpc.StatusCode, str]:
    """Return status and message of what the proxy refused: `{"status": …, "message": …}`, if it says so."""
    status, message = _BY_HTTP.get(http, "UNAVAILABLE"), f"proxy: HTTP status {http}"
    try:
        said = json.loads(body)
        said = said.get("error", said)
        status, message = str(said["status"]), str(said["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return getattr(grpc.StatusCode, status, grpc.StatusCode.UNKNOWN), message
