# SPDX-License-Identifier: Apache-2.0
"""Notify listeners of events; a listener that does not keep up loses the oldest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from serving_proxy.store import Event

_MOST_WAITING = 1000


class EventFeed:
    """Sends events to listeners, and signals changes."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[Event]] = set()
        self._changed = asyncio.Event()

    def publish(self, events: list[Event]) -> None:
        """Send events to all listeners."""
        for queue in self._listeners:
            for event in events:
                if queue.full():
                    queue.get_nowait()
                queue.put_nowait(event)

    @contextmanager
    def listen(self) -> Iterator[asyncio.Queue[Event]]:
        """Return a queue that receives the events from now on."""
        queue: asyncio.Queue[Event] = asyncio.Queue(_MOST_WAITING)
        self._listeners.add(queue)
        try:
            yield queue
        finally:
            self._listeners.discard(queue)

    def changed(self) -> None:
        """Wake all that wait for a change."""
        before, self._changed = self._changed, asyncio.Event()
        before.set()

    async def change(self, seconds: float | None = None) -> None:
        """Wait for the next change, or at most this time [s]."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
