# SPDX-License-Identifier: Apache-2.0
"""How long a call may keep the host waiting for its request.

A timer per call would cost more than most requests take, so a look every now and then serves all calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from processor import DeadlineExceededError, InvalidArgumentError, ProcessorError, ResourceExhaustedError
from serving_proxy.host.request_memory import RequestMemory

# How often is looked, and after what time a request is late in coming.
_PERIOD = 0.1
# How long streams stand open while there is no room.
_STREAM_GRACE_S = 2.0
_OUT_OF_MEMORY = "request: not complete when those in flight filled their memory (max_request_bytes_in_flight)"


class ReceiveTimeout:
    """Waits for requests. For the thread of one event loop.

    Parameters
    ----------
    seconds : float [s]
        How long a call may take to bring its request.
    request_memory : RequestMemory, optional
        Requests that are late in coming are refused when it is full.
    """

    def __init__(self, seconds: float, request_memory: RequestMemory | None = None) -> None:
        self._seconds = seconds
        self._request_memory = request_memory
        # Since when, in the order in which they began.
        self._waiting: dict[asyncio.Task[object], float] = {}
        self._streams: dict[asyncio.Task[object], float] = {}
        self._full_since: float | None = None
        self._refused: dict[asyncio.Task[object], ProcessorError] = {}

    async def first(self, requests: AsyncIterator[bytes]) -> bytes:
        """Return the one request of a call.

        Raises
        ------
        InvalidArgumentError
            If the client closed the call without one.
        DeadlineExceededError
            If none came in time.
        ResourceExhaustedError
            If it was not complete when requests in flight filled their memory.
        """
        try:
            return await self._next(requests, self._waiting)
        except StopAsyncIteration:
            raise InvalidArgumentError("request: none came, expected one message") from None

    async def each(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the requests of a stream, which may take their time.

        Raises
        ------
        ResourceExhaustedError
            If there has been no room for a while: whether a stream is idle or brings a request nobody knows.
        """
        while True:
            try:
                data = await self._next(requests, self._streams)
            except StopAsyncIteration:
                return
            yield data

    async def _next(self, requests: AsyncIterator[bytes], waiting: dict[asyncio.Task[object], float]) -> bytes:
        task = asyncio.current_task()
        assert task is not None
        waiting[task] = time.monotonic()
        try:
            return await anext(requests)
        except asyncio.CancelledError:
            refusal = self._refused.pop(task, None)
            if refusal is None:
                raise
            task.uncancel()
            raise refusal from None
        finally:
            del waiting[task]
            self._refused.pop(task, None)

    async def watch(self) -> None:
        """Give up those who have waited too long, until cancelled."""
        while True:
            await asyncio.sleep(min(_PERIOD, self._seconds))
            now = time.monotonic()
            oldest = next(iter(self._waiting.values()), now)
            late = now - oldest > _PERIOD or any(now - since > _PERIOD for since in self._streams.values())
            full = self._request_memory is not None and self._request_memory.is_full(waiting=late)
            self._full_since = (self._full_since or now) if full else None
            for task, since in list(self._waiting.items()):
                if now - since >= self._seconds:
                    message = f"request: none within {self._seconds:g} s, expected one message"
                    self._refuse(task, DeadlineExceededError(message))
                elif full and now - since > _PERIOD:
                    self._refuse(task, ResourceExhaustedError(_OUT_OF_MEMORY))
                else:
                    break
            if self._full_since is not None and now - self._full_since > _STREAM_GRACE_S:
                for task in list(self._streams):
                    self._refuse(task, ResourceExhaustedError(_OUT_OF_MEMORY))

    def _refuse(self, task: asyncio.Task[object], refusal: ProcessorError) -> None:
        if task not in self._refused:
            self._refused[task] = refusal
            task.cancel()
