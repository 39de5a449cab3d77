# SPDX-License-Identifier: Apache-2.0
"""Limit how long a call may keep the host waiting for its request.

A timer per call would cost more than most requests take, so one periodic check serves all calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc.aio

from processor import DeadlineExceededError, InvalidArgumentError, ProcessorError, ResourceExhaustedError
from serving_proxy.host.request_memory import RequestMemory

# `read` of a gRPC context: the next message, or `grpc.aio.EOF`. gRPC's iterator of messages does the same through an
# asynchronous generator, which costs more and is closed by a task of its own if it is left early.
Read = Callable[[], Awaitable[Any]]

# Period of the check; a request that takes longer than this to arrive counts as late.
_PERIOD = 0.1
# How long streams may stay open while there is no memory.
_STREAM_GRACE_S = 2.0
_OUT_OF_MEMORY = "request: not complete when those in flight filled their memory (max_request_bytes_in_flight)"


class ReceiveTimeout:
    """Waits for requests. For the thread of one event loop.

    Parameters
    ----------
    seconds : float [s]
        How long a call may take to send its request.
    request_memory : RequestMemory, optional
        If it is full, late requests are refused.
    """

    def __init__(self, seconds: float, request_memory: RequestMemory | None = None) -> None:
        self._seconds = seconds
        self._request_memory = request_memory
        # Start of the wait by task, in the order of the starts.
        self._waiting: dict[asyncio.Task[object], float] = {}
        self._streams: dict[asyncio.Task[object], float] = {}
        self._full_since: float | None = None
        self._refused: dict[asyncio.Task[object], ProcessorError] = {}

    async def first(self, read: Read) -> bytes:
        """Return the one request of a call.

        Raises
        ------
        InvalidArgumentError
            If the client closed the call without a request.
        DeadlineExceededError
            If no request came in time.
        ResourceExhaustedError
            If the request was not complete when requests in flight had filled their memory.
        """
        data = await self._next(read, self._waiting)
        if data is None:
            raise InvalidArgumentError("request: none came, expected one message")
        return data

    async def each(self, read: Read) -> AsyncIterator[bytes]:
        """Yield the requests of a stream, without a time limit.

        Raises
        ------
        ResourceExhaustedError
            If there has been no memory for a while. This ends idle streams too, because they cannot be told apart from
            those that are receiving a request.
        """
        while (data := await self._next(read, self._streams)) is not None:
            yield data

    async def _next(self, read: Read, waiting: dict[asyncio.Task[object], float]) -> bytes | None:
        """Return the next request; None after the last one."""
        task = asyncio.current_task()
        assert task is not None
        waiting[task] = time.monotonic()
        try:
            data = await read()
        except asyncio.CancelledError:
            refusal = self._refused.pop(task, None)
            if refusal is None:
                raise
            task.uncancel()
            raise refusal from None
        finally:
            del waiting[task]
            self._refused.pop(task, None)
        return None if data is grpc.aio.EOF else data

    async def watch(self) -> None:
        """Refuse calls that have waited too long, until the task is cancelled."""
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
