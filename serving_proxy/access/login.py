# SPDX-License-Identifier: Apache-2.0
"""Logins of the dashboard: the token is sent once, and never stored in the browser.

The browser stores a cookie, which scripts cannot read, and a key, which only pages of this port can read; a request
needs both. The cookie alone would not suffice, because browsers also send it with requests that pages of other sites,
or of other ports of this machine, make up. Both are derived from the token, so that they survive a restart of the proxy
and become invalid with the token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from http.cookies import CookieError, SimpleCookie
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import Headers

from serving_proxy.errors import UnauthenticatedError

LOGIN_PATH = "/v1/login"
KEY_HEADER = "x-session-key"
LASTS_S = 12 * 3600
_MOST_ENDED = 10_000


class Sessions:
    """Knows the token, and the sessions that were derived from it.

    Parameters
    ----------
    token : str
    """

    def __init__(self, token: str) -> None:
        self._bearer = f"Bearer {token}".encode()
        self._secret = hmac.digest(token.encode(), b"recprocessor admin session 1", hashlib.sha256)
        # Sessions that were ended early; kept until they would have ended anyway, which is at most the longest session
        # later.
        self._ended: OrderedDict[str, None] = OrderedDict()

    def is_token(self, token: str) -> bool:
        """Return whether a text is the token."""
        return hmac.compare_digest(f"Bearer {token}".encode("utf-8", "replace"), self._bearer)

    def permits(self, headers: Headers, port: int) -> bool:
        """Return whether a request has the token, or both cookie and key of a session."""
        authorization = headers.get("authorization")
        if authorization is not None:
            return hmac.compare_digest(authorization.encode("latin-1", "replace"), self._bearer)
        session = self._session(headers, port)
        key = headers.get(KEY_HEADER, "").encode("latin-1", "replace")
        return session is not None and hmac.compare_digest(key, self._sign("key", session).encode())

    def begin(self) -> tuple[str, str]:
        """Return the cookie and the key of a new session."""
        session = f"{int(time.time()) + LASTS_S}.{secrets.token_hex(16)}"
        return f"{session}.{self._sign('cookie', session)}", self._sign("key", session)

    def end(self, headers: Headers, port: int) -> None:
        """End the session of a request."""
        session = self._session(headers, port)
        if session is not None:
            self._ended[session] = None
            while len(self._ended) > _MOST_ENDED:
                self._ended.popitem(last=False)

    def _session(self, headers: Headers, port: int) -> str | None:
        """Return the session of a valid cookie."""
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(cookie_name(port))
        except CookieError:
            return None
        session, _, signature = ("" if found is None else found.value).rpartition(".")
        wanted = self._sign("cookie", session).encode()
        if not hmac.compare_digest(signature.encode("latin-1", "replace"), wanted) or session in self._ended:
            return None
        return session if int(session.partition(".")[0]) > time.time() else None

    def _sign(self, purpose: str, session: str) -> str:
        return hmac.new(self._secret, f"{purpose} {session}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


class LoginBody(BaseModel):
    """The token of the proxy."""

    model_config = ConfigDict(extra="forbid", strict=True)

    token: Annotated[str, Field(min_length=1, max_length=4096)]


class LoginAnswer(BaseModel):
    """The response to a login: the key that the dashboard sends in `X-Session-Key`, in addition to the cookie."""

    key: str
    lasts_s: int


def cookie_name(port: int) -> str:
    """Return the name of the cookie, with the port: browsers send a cookie to all ports of a machine."""
    return f"serving-proxy-{port}"


def login_routes(sessions: Sessions) -> APIRouter:
    """Make the routes by which the dashboard begins and ends a session."""
    router = APIRouter(prefix="/v1", include_in_schema=False)

    @router.post("/login")
    async def login(body: LoginBody, request: Request, response: Response) -> LoginAnswer:
        if not sessions.is_token(body.token.strip()):
            raise UnauthenticatedError("token: wrong, expected the token of this proxy")
        cookie, key = sessions.begin()
        _set(response, request, cookie, LASTS_S)
        return LoginAnswer(key=key, lasts_s=LASTS_S)

    @router.post("/logout", status_code=204)
    async def logout(request: Request, response: Response) -> None:
        sessions.end(request.headers, port_of(request.scope))
        _set(response, request, "", 0)

    return router


def port_of(scope: object) -> int:
    """Return the port at which a request arrived."""
    server = scope.get("server") if isinstance(scope, dict) else None
    return int(server[1]) if server and server[1] is not None else 0


def _set(response: Response, request: Request, cookie: str, lasts_s: int) -> None:
    response.set_cookie(
        cookie_name(port_of(request.scope)),
        cookie,
        max_age=lasts_s,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    response.headers["Cache-Control"] = "no-store"
