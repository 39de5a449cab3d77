# SPDX-License-Identifier: Apache-2.0
"""How long a call may keep the host waiting for its request.

A timer per call would cost more than most requests take, so one look a second serves all calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from processor import DeadlineExceededError, InvalidArgumentError


class Patience:
    """Waits for requests. For the thread of one event loop."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # In the order in which they began.
        self._waiting: dict[asyncio.Task[object], float] = {}
        self._impatient: set[asyncio.Task[object]] = set()

    async def first(self, requests: AsyncIterator[bytes]) -> bytes:
        """Return the one request of a call.

        Raises
        ------
        InvalidArgumentError
            If the client closed the call without one.
        DeadlineExceededError
            If none came in time.
        """
        task = asyncio.current_task()
        assert task is not None
        self._waiting[task] = time.monotonic() + self._seconds
        try:
            return await anext(requests)
        except StopAsyncIteration:
            raise InvalidArgumentError("request: none came, expected one message") from None
        except asyncio.CancelledError:
            if task not in self._impatient:
                raise
            self._impatient.discard(task)
            task.uncancel()
            message = f"request: none within {self._seconds:g} s, expected one message"
            raise DeadlineExceededError(message) from None
        finally:
            del self._waiting[task]

    async def watch(self) -> None:
        """Give up those who have waited too long, until cancelled."""
        while True:
            await asyncio.sleep(min(1.0, self._seconds))
            now = time.monotonic()
            for task, until in list(self._waiting.items()):
                if until > now:
                    break
                if task not in self._impatient:
                    self._impatient.add(task)
                    task.cancel()
