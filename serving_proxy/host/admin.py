# SPDX-License-Identifier: Apache-2.0
"""The connection to the proxy's admin API, to which a host forwards requests that it does not decide itself.

The proxy's response is a status and a text.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import grpc

# For requests without a deadline: loading a large model takes minutes.
MOST_S = 3600.0
# The proxy itself reports a timeout; this additional time is for a proxy that hangs.
_GRACE_S = 10.0
_MOST_BYTES = 1024 * 1024
PROTOBUF, JSON = "application/x-protobuf", "application/json"

Outcome = tuple[grpc.StatusCode, str]


class Admin:
    """Forwards requests to the proxy.

    Parameters
    ----------
    url : str or None
        URL of the admin API; None if the host was not given one.
    token_file : Path, optional
        Read at every request, so that a new token needs no restart.
    """

    def __init__(self, url: str | None, token_file: Path | None) -> None:
        self._url = "" if url is None else url.rstrip("/")
        self._token_file = token_file

    async def post(self, path: str, data: bytes | bytearray, content_type: str, seconds: float | None) -> Outcome:
        """Forward a request, and return the status and message of the proxy's response.

        Parameters
        ----------
        path : str
            With its query.
        seconds : float or None [s]
            How long the proxy may take; None: an hour at most.
        """
        most = MOST_S if seconds is None else min(max(seconds, 0.0), MOST_S)
        mark = "&" if "?" in path else "?"
        return await asyncio.to_thread(self._post, f"{path}{mark}wait={most:g}", data, content_type, most + _GRACE_S)

    def _post(self, path: str, data: bytes | bytearray, content_type: str, seconds: float) -> Outcome:
        headers = {"Content-Type": content_type}
        try:
            if self._token_file is not None:
                headers["Authorization"] = f"Bearer {self._token_file.read_text(encoding='ascii').strip()}"
            request = urllib.request.Request(f"{self._url}{path}", bytes(data), headers, method="POST")
            with _OPENER.open(request, timeout=seconds):
                return grpc.StatusCode.OK, ""
        except urllib.error.HTTPError as error:
            with error:
                return _refusal(error.code, error.read(_MOST_BYTES))
        except (OSError, ValueError) as error:
            return grpc.StatusCode.UNAVAILABLE, f"proxy: {error}, expected its admin API"


async def hand_on(
    admin: Admin | None,
    asked: tuple[str, str],
    path: str,
    data: bytes | bytearray,
    content_type: str,
    seconds: float | None,
) -> Outcome:
    """Forward a request, or refuse it if forwarding is off.

    Parameters
    ----------
    admin : Admin or None
        None: it is off.
    asked : tuple of str
        The kind of request, and the option that permits it.
    """
    if admin is None:
        what, option = asked
        return grpc.StatusCode.PERMISSION_DENIED, f"{what}: off on this host, expected {option}"
    return await admin.post(path, data, content_type, seconds)


async def hand_on_call(
    admin: Admin | None, asked: tuple[str, str], path: str, data: bytes | bytearray, context: Any
) -> bytes:
    """Forward the message of a gRPC call, and return its response, whose content is in its status."""
    code, message = await hand_on(admin, asked, path, data, PROTOBUF, context.time_remaining())
    if code is not grpc.StatusCode.OK:
        context.set_code(code)
        context.set_details(message)
    return b""


# The admin API is on this machine or named by the operator, so proxies that the environment names are not used.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_BY_HTTP = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}


def _refusal(http: int, body: bytes) -> Outcome:
    """Return status and message of a request that the proxy refused, from `{"status": …, "message": …}` if it sent
    that.
    """
    status, message = _BY_HTTP.get(http, "UNAVAILABLE"), f"proxy: HTTP status {http}"
    try:
        said = json.loads(body)
        said = said.get("error", said)
        status, message = str(said["status"]), str(said["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return getattr(grpc.StatusCode, status, grpc.StatusCode.UNKNOWN), message
