# SPDX-License-Identifier: Apache-2.0
"""Requests from pages of other origins (CORS): off unless origins are named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from serving_proxy.host.http_body import Message, Receive
from serving_proxy.host.provenance import NAMES

Headers = list[tuple[bytes, bytes]]

_ANY = "*"
_METHODS = b"GET, HEAD, POST"
_EXPOSED = ", ".join((*NAMES, "inference-header-content-length", "retry-after")).encode()
_MAX_AGE_S = b"3600"


class Cors:
    """Answers the preflight requests of browsers, and marks the responses that pages may read.

    Parameters
    ----------
    app : ASGI application
    origins : sequence of str
        As in `https://shop.example`; `*`: all.
    """

    def __init__(self, app: Any, origins: Sequence[str]) -> None:
        self._app = app
        self._any = _ANY in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    async def __call__(self, scope: Any, receive: Receive, send: Any) -> None:
        """Serve one request."""
        said = dict(scope["headers"])
        origin = said.get(b"origin")
        if origin is None:
            await self._app(scope, receive, send)
            return
        allowed = self._any or origin in self._origins
        marks = self._marks(origin) if allowed else []
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in said:
            await _answer_question(send, origin, marks, said.get(b"access-control-request-headers"))
            return

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *marks,
                    *([(b"access-control-expose-headers", _EXPOSED)] * allowed),
                ]
            await send(message)

        await self._app(scope, receive, send_marked)

    def _marks(self, origin: bytes) -> Headers:
        if self._any:
            return [(b"access-control-allow-origin", b"*")]
        return [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]


async def _answer_question(send: Any, origin: bytes, marks: Headers, asked: bytes | None) -> None:
    status, body = 204, b""
    headers = list(marks)
    if marks:
        headers += [(b"access-control-allow-methods", _METHODS), (b"access-control-max-age", _MAX_AGE_S)]
        headers += [(b"access-control-allow-headers", asked)] if asked is not None else []
    else:
        status = 403
        text = origin[:200].decode("utf-8", "replace")
        body = json.dumps({"error": f"origin '{text}': not allowed, expected one of --cors-origin"}).encode()
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def with_cors(app: Any, origins: Sequence[str]) -> Any:
    """Return the application, wrapped for pages of these origins if there are any."""
    return Cors(app, origins) if origins else app
