# SPDX-License-Identifier: Apache-2.0
"""uvicorn's HTTP protocol with limits for the number of connections and for the time until a request's head is
complete.

If there are too many connections, the one that has been idle longest is closed to make room for a new one; if none is
idle, the new one is closed.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0


class LimitedProtocol(H11Protocol):
    """Closes connections whose next request does not arrive in time, so that a slow client does not occupy a
    connection.
    """

    most_connections = 512
    # Ordered by age; those of one server, see `limited_protocol`.
    idle: ClassVar[dict[LimitedProtocol, None]] = {}
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            oldest = next(iter(self.idle), self)
            self.idle.pop(oldest, None)
            oldest.transport.abort()
        self._set_idle(not transport.is_closing())
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Continue to wait unless the head is complete."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._set_idle(False)
            self._end_wait()
        elif self._timer is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        self._end_wait()
        self._set_idle(False)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Leave the time until the next request to the keep-alive limit."""
        self._end_wait()
        super().on_response_complete()
        self._set_idle(not self.transport.is_closing())

    def _set_idle(self, is_idle: bool) -> None:
        self.idle.pop(self, None)
        if is_idle:
            self.idle[self] = None

    def _wait(self) -> None:
        self._timer = self.loop.call_later(HEAD_S, self._give_up)

    def _end_wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()


def limited_protocol(most: int) -> type[LimitedProtocol]:
    """Return the protocol of one server, which may have this number of connections."""

    class Protocol(LimitedProtocol):
        most_connections = most
        idle: ClassVar[dict[LimitedProtocol, None]] = {}

    return Protocol
