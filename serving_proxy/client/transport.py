# SPDX-License-Identifier: Apache-2.0
"""The connection to the admin port: the token, retries while no proxy listens yet, and named errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import httpx

from serving_proxy.access.tokens import find_token
from serving_proxy.errors import LateError, UnavailableError, from_status

POLL_S = 0.2
# A client that waits longer than this is told why.
_SILENT_S = 1.0


class RetryingTransport(httpx.HTTPTransport):
    """Adds the token, and retries while the connection is refused: nothing was sent, and a proxy may be starting."""

    def __init__(
        self,
        server: str,
        token: str | None,
        verify: bool | str,
        start_timeout: float,
        told: Callable[[str], None] | None,
    ) -> None:
        super().__init__(verify=verify, trust_env=False)
        self._server = server
        self._given = token or None
        self._found: str | None = None
        self._start_timeout = start_timeout
        self._told = told

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        begun, silent = time.monotonic(), True
        while True:
            try:
                answer = self._send(request)
                if answer.status_code == 401 and self._given is None and self._find():
                    # Another proxy uses the port by now, or its token was written only then.
                    answer.close()
                    answer = self._send(request)
                return answer
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

    def _send(self, request: httpx.Request) -> httpx.Response:
        if self._given is None and self._found is None:
            self._find()
        token = self._given or self._found
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        return super().handle_request(request)

    def _find(self) -> bool:
        """Look for the token, and return whether it has changed."""
        before, self._found = self._found, find_token(self._server)
        return self._found not in {None, before}


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
        raise UnavailableError(f"{server}: {error}, expected a proxy; is `serving-proxy serve` running?") from error


def error_of(answer: httpx.Response) -> Exception:
    """Return the exception for the status that the proxy returned."""
    with suppress(ValueError, KeyError, TypeError):
        found = answer.json()["error"]
        return from_status(found["status"], found["message"])
    return UnavailableError(f"{answer.url}: HTTP {answer.status_code}, expected a proxy")
