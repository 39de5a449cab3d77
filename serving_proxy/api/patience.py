# SPDX-License-Identifier: Apache-2.0
"""uvicorn's HTTP protocol with a limit for how long a client may take to send the head of a request."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0


class PatientProtocol(H11Protocol):
    """Closes connections whose next request has not been named in time: a slow client must not hold a place."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Go on waiting unless that was the end of the head."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._end_wait()
        elif self._timer is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._end_wait()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Leave the time until the next request to the keep-alive limit."""
        self._end_wait()
        super().on_response_complete()

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
