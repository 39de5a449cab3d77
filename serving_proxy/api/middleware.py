# SPDX-License-Identifier: Apache-2.0
"""Checks before every request: permission, size and time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving_proxy.access.login import LOGIN_PATH, Sessions, port_of
from serving_proxy.access.tokens import is_loopback
from serving_proxy.api.errors import answer
from serving_proxy.records.machine_logs import PART_BYTES

MOST_BODY_BYTES = 1024 * 1024
# A report contains the statistics of all versions of a machine, and a placement all replicas of a fleet.
MOST_REPORT_BYTES = 32 * 1024 * 1024
AGENTS_PATH = "/v1/agents/"
# A part of the recorded requests of a machine.
_PART = "/bytes"
PLACEMENT_PATH = "/v1/placement"
_BODY_S = 10.0
_NO_TOKEN = (
    "token: missing or wrong, expected 'Authorization: Bearer …' with the token in `admin.token` of the state "
    "directory, or in its --token-file"
)
_NO_AGENT_TOKEN = "token: missing or wrong, expected that of the proxy's --agent-token-file"
OPEN_PATHS = frozenset({"/", "/healthz", "/page/"})


class Guarding:
    """Permits requests that have the token, or a session that was begun with it.

    If there is no token, it permits requests that come from this machine but not from a web page.

    Parameters
    ----------
    app : ASGI application
    sessions : Sessions or None
    open_paths : frozenset of str
        Paths that need no permission. A path that ends with "/" includes all paths below it, except "/" itself.
    narrow : mapping of str to Sessions, optional
        By the beginning of a path: another token, which permits requests there only.
    """

    def __init__(
        self,
        app: ASGIApp,
        sessions: Sessions | None,
        open_paths: frozenset[str] = OPEN_PATHS,
        narrow: Mapping[str, Sessions] | None = None,
    ) -> None:
        self._app = app
        self._sessions = sessions
        self._open = open_paths
        self._narrow = narrow or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await answer(*refusal)(scope, receive, send)
            return
        await self._app(scope, _Limited(receive, most_body_bytes(scope["path"])).receive, send)

    def _refusal(self, scope: Scope) -> tuple[str, str, int] | None:
        """Return status, message and HTTP code of a request that is refused."""
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        most = most_body_bytes(scope["path"])
        if length.isdecimal() and int(length) > most:
            return "INVALID_ARGUMENT", f"body: {length} bytes, expected at most {most}", 413
        if any(
            scope["path"] == path or (len(path) > 1 and path.endswith("/") and scope["path"].startswith(path))
            for path in self._open
        ):
            return None
        if self._sessions is not None:
            if scope["path"] != LOGIN_PATH and not self._has_token(scope, headers):
                is_narrow = any(scope["path"].startswith(path) for path in self._narrow)
                return "UNAUTHENTICATED", _NO_AGENT_TOKEN if is_narrow else _NO_TOKEN, 401
        elif not _is_local(scope, headers):
            return "PERMISSION_DENIED", "no token is configured, expected a request of this machine", 403
        if not _is_same_origin(headers):
            return "PERMISSION_DENIED", "origin: another site's page, expected the proxy's own", 403
        return None

    def _has_token(self, scope: Scope, headers: Headers) -> bool:
        assert self._sessions is not None
        others = [other for path, other in self._narrow.items() if scope["path"].startswith(path)]
        return any(known.permits(headers, port_of(scope)) for known in (self._sessions, *others))


def most_body_bytes(path: str) -> int:
    """Return the largest size of a request's body."""
    if path.startswith(AGENTS_PATH) and path.endswith(_PART):
        return PART_BYTES
    return MOST_REPORT_BYTES if path.startswith(AGENTS_PATH) or path == PLACEMENT_PATH else MOST_BODY_BYTES


def _is_local(scope: Scope, headers: Headers) -> bool:
    """Return whether a request comes from this machine and names it in its `Host` header."""
    client = scope.get("client")
    host = headers.get("host", "localhost")
    name = host if host.endswith("]") or ":" not in host else host.rpartition(":")[0]
    return client is not None and is_loopback(client[0]) and is_loopback(name)


def _is_same_origin(headers: Headers) -> bool:
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host", "")


class _Limited:
    """Limits the size of the body and the time to receive it."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._most = most
        self._bytes = 0
        self._complete = False

    async def receive(self) -> Message:
        if self._complete:
            # From here on, only the end of the connection is reported; a stream may wait for that for hours.
            return await self._receive()
        try:
            async with asyncio.timeout(_BODY_S):
                message = await self._receive()
        except TimeoutError as error:
            raise HTTPException(408, f"body: not complete after {_BODY_S:g} s") from error
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._most:
            raise HTTPException(413, f"body: more than {self._most} bytes, expected less")
        self._complete = not message.get("more_body", False)
        return message
