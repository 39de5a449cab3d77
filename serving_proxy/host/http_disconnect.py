# SPDX-License-Identifier: Apache-2.0
"""Stop waiting for an answer when the client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from serving_proxy.host.http_body import DisconnectedError, Receive

T = TypeVar("T")

# A task that watches the connection costs as much as a short request, so only longer requests get one.
_PATIENCE_S = 0.01


async def unless_disconnected(answer: Awaitable[T], receive: Receive) -> T:
    """Return the answer; cancel it if the client disconnects first.

    Parameters
    ----------
    receive : Receive
        The body of the request must have been received: then the next message is the disconnection.

    Raises
    ------
    DisconnectedError
        If the client disconnected.
    """
    watch = _Watch(receive)
    try:
        return await answer
    except asyncio.CancelledError:
        if not watch.disconnected:
            raise
        watch.task.uncancel()
        raise DisconnectedError from None
    finally:
        watch.end()


class _Watch:
    """Cancels the current task when the client disconnects."""

    def __init__(self, receive: Receive) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.disconnected = False
        self._receive = receive
        self._receiving: asyncio.Future[Any] | None = None
        self._timer = task.get_loop().call_later(_PATIENCE_S, self._begin)

    def _begin(self) -> None:
        self._receiving = asyncio.ensure_future(self._receive())
        self._receiving.add_done_callback(self._on_disconnect)

    def _on_disconnect(self, _: asyncio.Future[Any]) -> None:
        self.disconnected = True
        self.task.cancel()

    def end(self) -> None:
        """Watch no longer."""
        self._timer.cancel()
        if self._receiving is not None:
            self._receiving.remove_done_callback(self._on_disconnect)
            self._receiving.cancel()
