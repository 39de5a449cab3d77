# SPDX-License-Identifier: Apache-2.0
"""Events and status as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from serving_proxy.api.errors import RESPONSES
from serving_proxy.control.plane import Plane
from serving_proxy.control.views import event_view

# Longest silence: shorter than the time after which proxies on the way to a browser close a connection.
_SILENCE_S = 15.0
# Least and largest time between reports of the state; counters change without an event.
_LEAST_S, _MOST_S = 0.2, 1.0
_MOST_STREAMS = 64

Topic = Literal["events", "status", "watch"]


def stream_route(plane: Plane) -> APIRouter:
    """Make the route of the stream."""
    router = APIRouter(prefix="/v1", responses=RESPONSES, tags=["proxy"])
    streams = asyncio.Semaphore(_MOST_STREAMS)

    @router.get("/stream", response_class=StreamingResponse)
    async def stream(
        topics: Annotated[list[Topic] | None, Query(max_length=3)] = None,
        last_event_id: Annotated[str | None, Header(max_length=20)] = None,
    ) -> StreamingResponse:
        """Stream `event` messages, with the event's id, and `status` messages, whenever something is new.

        The topic `watch` must be requested: the newest point of every line of the history, the guard's verdicts and the
        owners of CPUs, every other second. A client that sends the last id that it has received gets the events that it
        missed.
        """
        wanted = frozenset(topics or ("events", "status"))
        last = int(last_event_id) if last_event_id and last_event_id.isdecimal() else None
        return StreamingResponse(
            _messages(plane, wanted, last, streams),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    return router


async def _messages(
    plane: Plane, topics: frozenset[str], last: int | None, streams: asyncio.Semaphore
) -> AsyncIterator[bytes]:
    if streams.locked():
        yield _message("error", json.dumps({"status": "RESOURCE_EXHAUSTED", "message": f"{_MOST_STREAMS} streams"}))
        return
    async with streams:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(16)
        tasks = [asyncio.create_task(_events(plane, queue, last))] if "events" in topics else []
        tasks += [asyncio.create_task(_statuses(plane, queue))] if "status" in topics else []
        tasks += [asyncio.create_task(_watch(plane, queue))] if "watch" in topics else []
        tasks.append(asyncio.create_task(_end(plane, queue)))
        try:
            while True:
                message: bytes | None = b": nothing new\n\n"
                with suppress(TimeoutError):
                    async with asyncio.timeout(_SILENCE_S):
                        message = await queue.get()
                if message is None:
                    return
                yield message
        finally:
            for task in tasks:
                task.cancel()


async def _events(plane: Plane, queue: asyncio.Queue[bytes | None], last: int | None) -> None:
    with plane.control.feed.listen() as events:
        if last is not None:
            for event in plane.control.repository.events(last, limit=1000):
                last = event.id
                await queue.put(_message("event", event_view(event).model_dump_json(), event.id))
        while True:
            event = await events.get()
            if last is None or event.id > last:
                await queue.put(_message("event", event_view(event).model_dump_json(), event.id))


async def _statuses(plane: Plane, queue: asyncio.Queue[bytes | None]) -> None:
    before = ""
    while True:
        text = plane.status().model_dump_json()
        if text != before:
            await queue.put(_message("status", text))
            before = text
        await asyncio.sleep(_LEAST_S)
        await plane.control.feed.change(_MOST_S - _LEAST_S)


async def _watch(plane: Plane, queue: asyncio.Queue[bytes | None]) -> None:
    while True:
        await queue.put(_message("watch", plane.observer.view().model_dump_json()))
        await plane.observer.point()


async def _end(plane: Plane, queue: asyncio.Queue[bytes | None]) -> None:
    """End the stream when the proxy shuts down; otherwise it would keep the server from ending."""
    await plane.closing.wait()
    await queue.put(None)


def _message(kind: str, data: str, number: int | None = None) -> bytes:
    identity = f"id: {number}\n" if number is not None else ""
    return f"{identity}event: {kind}\ndata: {data}\n\n".encode()
