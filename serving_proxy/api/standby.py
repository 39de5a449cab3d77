# SPDX-License-Identifier: Apache-2.0
"""The application of the admin port while another proxy leads, and the change between the two."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from serving_proxy.access.tokens import LEADER_HEADER
from serving_proxy.api.errors import answer


class StandbyApp:
    """Names the proxy that leads, or says that this one cannot follow.

    Parameters
    ----------
    leader : callable
        Returns its URL, or None if none is known.
    is_cut_off : callable
        Returns whether this proxy could neither follow nor lead when it tried last. The cause is in its log:
        it may name addresses, and who asks has not shown a token.
    """

    def __init__(self, leader: Callable[[], str | None], is_cut_off: Callable[[], bool]) -> None:
        self._leader = leader
        self._is_cut_off = is_cut_off

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        leader = self._leader()
        if scope["path"] == "/healthz":
            response = JSONResponse({"status": "standby", "leader": leader})
        else:
            if self._is_cut_off():
                said = "and can neither follow nor lead; its log says why"
            else:
                said = "none leads at the moment" if leader is None else f"{leader} leads"
            response = answer("UNAVAILABLE", f"this proxy is on standby, {said}")
            if leader is not None:
                response.headers[LEADER_HEADER] = leader
        await response(scope, receive, send)


class SwitchedApp:
    """Forwards each request to the application of the moment.

    Attributes
    ----------
    app : ASGI application
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)
