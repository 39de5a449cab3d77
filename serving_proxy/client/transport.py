# SPDX-License-Identifier: Apache-2.0
"""The connection to the admin port: the token, retries while no proxy listens yet, the way to the proxy that leads, and
named errors.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus

import httpx

from serving_proxy.access.certificates import connection_fault
from serving_proxy.access.tokens import LEADER_HEADER, check_clear_text, find_token
from serving_proxy.errors import LateError, PreconditionError, UnavailableError, from_status

POLL_S = 0.2
# A client that waits longer than this is told why.
_SILENT_S = 1.0
# What a proxy says of a path or a method that only another release has.
_NO_ROUTE = {code.phrase for code in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)}


class RetryingTransport(httpx.HTTPTransport):
    """Adds the token, and retries while the connection is refused: nothing was sent, and a proxy may be starting.

    A proxy on standby names the one that leads. The request is then sent there, with the same certificates to trust and
    the same token, which never leaves TLS. If that proxy does not lead either, its answer stands.
    """

    def __init__(
        self,
        server: str,
        token: str | None,
        verify: bool | ssl.SSLContext,
        start_timeout: float,
        told: Callable[[str], None] | None,
    ) -> None:
        super().__init__(verify=verify, trust_env=False)
        self._server = server
        self._given = token or None
        # By server: the tokens that were found on this machine.
        self._found: dict[str, str] = {}
        self._start_timeout = start_timeout
        self._told = told

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and send it again to the proxy that leads if the answer names one."""
        answer = self._send_patiently(request)
        leader = answer.headers.get(LEADER_HEADER) if answer.status_code == 503 else None
        if leader is None:
            return answer
        answer.close()
        to_leader = _moved(request, self._server, leader)
        if self._given is not None:
            check_clear_text(leader)
        try:
            return self._send(to_leader, leader)
        except httpx.TransportError as error:
            raise type(error)(f"on standby, and {leader}, which leads: {error}") from error

    def _send_patiently(self, request: httpx.Request) -> httpx.Response:
        begun, silent = time.monotonic(), True
        while True:
            try:
                return self._send(request, self._server)
            except httpx.ConnectError as error:
                waited = time.monotonic() - begun
                if not _is_refusal(error) or waited >= self._start_timeout:
                    raise
            if silent and self._told is not None and waited >= _SILENT_S:
                silent = False
                self._told(
                    f"{self._server}: connection refused, waiting {self._start_timeout:g} s for a proxy to start"
                )
            time.sleep(POLL_S)

    def _send(self, request: httpx.Request, server: str) -> httpx.Response:
        """Send a request with the token of a server."""
        if self._given is None and server not in self._found:
            self._find(server)
        answer = self._send_once(request, server)
        if answer.status_code == 401 and self._given is None and self._find(server):
            # Another proxy uses the port by now, or its token was written only then.
            answer.close()
            answer = self._send_once(request, server)
        return answer

    def _send_once(self, request: httpx.Request, server: str) -> httpx.Response:
        token = self._given or self._found.get(server)
        request.headers.pop("Authorization", None)
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        return super().handle_request(request)

    def _find(self, server: str) -> bool:
        """Look for the token of a server, and return whether it has changed."""
        before, found = self._found.get(server), find_token(server)
        if found is not None:
            self._found[server] = found
        return found not in {None, before}


def _moved(request: httpx.Request, server: str, leader: str) -> httpx.Request:
    """Return a request for another server.

    Raises
    ------
    UnavailableError
        A proxy with TLS names one without, which could be anybody.
    """
    try:
        place = httpx.URL(leader)
    except httpx.InvalidURL:
        place = httpx.URL("")
    if place.scheme not in {"http", "https"} or (request.url.scheme == "https" and place.scheme != "https"):
        raise UnavailableError(f"{server}: on standby, and says that '{leader[:200]}' leads, expected a URL with https")
    url = request.url.copy_with(scheme=place.scheme, host=place.host, port=place.port)
    headers = {**request.headers, "host": url.netloc.decode("ascii")}
    return httpx.Request(request.method, url, headers=headers, stream=request.stream, extensions=request.extensions)


def _is_refusal(error: BaseException | None) -> bool:
    """Return whether a network error means that nothing listens at the port."""
    while error is not None and not isinstance(error, ConnectionRefusedError):
        error = error.__cause__ or error.__context__
    return error is not None


@contextmanager
def named_faults(server: str) -> Iterator[None]:
    """Convert network errors to the proxy's errors."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise LateError(f"{server}: no answer in time, expected a proxy") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UnavailableError(connection_fault(server, error, "; is `serving-proxy serve` running?")) from error


def error_of(answer: httpx.Response) -> Exception:
    """Return the exception for the status that the proxy returned."""
    with suppress(ValueError, KeyError, TypeError):
        found = answer.json()["error"]
        if found["message"] in _NO_ROUTE:
            verb = f"{answer.request.method} {answer.url.path}"
            return PreconditionError(f"{verb}: not known to the proxy, expected a proxy of this release or a later one")
        return from_status(found["status"], found["message"])
    return UnavailableError(f"{answer.url}: HTTP {answer.status_code}, expected a proxy")
