# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from typing import Any

import pytest

from serving_proxy.host.http_body import DisconnectedError
from serving_proxy.host.http_disconnect import unless_disconnected


def _run(answer_s: float, disconnect_s: float) -> tuple[int | None, list[str]]:
    """Return the answer, or None if the client was gone before it, and what happened to the waits."""
    events: list[str] = []

    async def answer() -> int:
        try:
            await asyncio.sleep(answer_s)
        except asyncio.CancelledError:
            events.append("answer cancelled")
            raise
        return 7

    async def receive() -> dict[str, Any]:
        events.append("watched")
        try:
            await asyncio.sleep(disconnect_s)
        except asyncio.CancelledError:
            events.append("watch cancelled")
            raise
        return {"type": "http.disconnect"}

    async def run() -> int | None:
        try:
            return await unless_disconnected(answer(), receive)
        except DisconnectedError:
            return None
        finally:
            # The cancellation of the watch takes effect, and nothing is left that could cancel this task.
            await asyncio.sleep(0.02)

    return asyncio.run(run()), events


def test_disconnection_cancels_the_answer() -> None:
    assert _run(answer_s=30, disconnect_s=0) == (None, ["watched", "answer cancelled"])


def test_answer_ends_the_watch() -> None:
    assert _run(answer_s=0.2, disconnect_s=30) == (7, ["watched", "watch cancelled"])


def test_quick_answer_is_not_watched() -> None:
    assert _run(answer_s=0, disconnect_s=0) == (7, [])


def test_cancellation_by_others_is_passed_on() -> None:
    async def never() -> Any:
        await asyncio.Event().wait()

    async def run() -> None:
        task = asyncio.ensure_future(unless_disconnected(never(), never))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
