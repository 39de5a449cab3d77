# SPDX-License-Identifier: Apache-2.0
"""Run asynchronous requests under asyncio: one completion queue per event loop, read when its eventfd is readable.

No callback runs on another thread: the loop watches the descriptor and takes the requests that have ended.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from itertools import count
from typing import Any

from processor._ffi import NULL, ffi
from processor._lib import get_lib
from processor._result import Result
from processor.errors import check_error, make_error

_CAPACITY = 64
_TARGET_SIZE: int = ffi.sizeof("struct processor_target")

_lock = threading.Lock()
_queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopQueue] = weakref.WeakKeyDictionary()


class LoopQueue:
    """Completion queue of one event loop; use it only on the thread of that loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Create a queue and register it with `loop`."""
        self._lib = get_lib()
        self._queue = NULL
        queue, error = ffi.new("processor_queue **"), ffi.new("processor_error *")
        check_error(self._lib.processor_queue_create(queue, error), error)
        self._queue = queue[0]
        self._completions = ffi.new("processor_completion[]", _CAPACITY)
        # Futures that have not ended, by tag. A cancelled future stays until the library has reported its end.
        self._pending: dict[int, asyncio.Future[Result]] = {}
        self._tags = count(1)
        # An attribute would keep the loop alive through its own entry in the weak dictionary.
        loop.add_reader(self._lib.processor_queue_fd(self._queue), self._deliver)

    async def run(self, loop: asyncio.AbstractEventLoop, model: Any, request: Any) -> Result:
        """Run a request.

        Parameters
        ----------
        loop : event loop
            The running loop that this queue belongs to.
        model : cdata processor_model *
        request : cdata processor_request *
            Borrowed until the first suspension.
        """
        start, cancel = self._lib.processor_model_run_async, self._lib.processor_model_cancel
        return await self._run(loop, start, cancel, model, request)

    async def run_on_host(self, loop: asyncio.AbstractEventLoop, host: Any, request: Any) -> Result:
        """Run a request on a host, as `run` does for a model.

        Parameters
        ----------
        host : cdata processor_host *
        request : cdata processor_host_request *
            Borrowed until the first suspension.
        """
        start, cancel = self._lib.processor_host_process_async, self._lib.processor_host_cancel
        return await self._run(loop, start, cancel, host, request)

    async def _run(self, loop: asyncio.AbstractEventLoop, start: Any, cancel: Any, runner: Any, request: Any) -> Result:
        tag = next(self._tags)
        target, number = ffi.new("processor_target *"), ffi.new("uint64_t *")
        target.struct_size = _TARGET_SIZE
        target.tag = tag
        target.queue = self._queue
        error = ffi.new("processor_error *")
        status = start(runner, request, target, number, error)
        check_error(status, error)
        # Even if the request has ended by now, its result is only taken once this coroutine waits.
        future: asyncio.Future[Result] = loop.create_future()
        self._pending[tag] = future
        try:
            return await future
        except asyncio.CancelledError:
            # The end is still reported, and then dropped. NOT_FOUND means that the request has just ended: no effect.
            cancel(runner, number[0], NULL)
            raise

    def _deliver(self) -> None:
        for tag, result, error in self._take():
            future = self._pending.pop(tag)
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            elif result is not None:
                future.set_result(result)

    def _take(self) -> list[tuple[int, Result | None, Exception | None]]:
        taken: list[tuple[int, Result | None, Exception | None]] = []
        while number := self._lib.processor_queue_next(self._queue, self._completions, _CAPACITY):
            for completion in self._completions[0:number]:
                result = None if completion.result == NULL else Result(completion.result)
                if completion.error.code:
                    error = make_error(completion.error)
                    error.answer = None if result is None else result.to_answer()
                    taken.append((completion.tag, None, error))
                else:
                    taken.append((completion.tag, result, None))
        return taken

    def free_if_idle(self) -> bool:
        """Free the queue of a closed loop, unless a request may still end in it.

        Returns
        -------
        bool
            True if the queue was freed.
        """
        for tag, _, _ in self._take():
            self._pending.pop(tag)
        if self._pending:
            return False
        self._free()
        return True

    def _free(self) -> None:
        queue, self._queue = self._queue, NULL
        self._lib.processor_queue_free(queue)

    def __del__(self, _is_finalizing: Any = sys.is_finalizing) -> None:
        # The loop is gone. Pending futures would have kept this queue alive, so no request can end in it any more.
        if not _is_finalizing() and self._queue != NULL:
            self._free()


def loop_queue(loop: asyncio.AbstractEventLoop) -> LoopQueue:
    """Return the queue of a running loop; create it on first use."""
    queue = _queues.get(loop)
    if queue is None:
        with _lock:
            free_queues_of_closed_loops()
            queue = _queues[loop] = LoopQueue(loop)
    return queue


def free_queues_of_closed_loops() -> None:
    """Free the queues of closed loops; a queue with unfinished requests is left until the next call."""
    for loop, queue in list(_queues.items()):
        if loop.is_closed() and queue.free_if_idle():
            del _queues[loop]
