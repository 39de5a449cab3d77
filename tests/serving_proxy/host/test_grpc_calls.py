# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from processor import ResourceExhaustedError
from serving_proxy.host.grpc_calls import InFlight, single
from serving_proxy.host.receive_timeout import ReceiveTimeout
from serving_proxy.host.request_memory import RequestMemory


async def unused() -> AsyncIterator[bytes]:
    """Stand for gRPC's iterator of messages, which handlers do not use."""
    yield b""


def test_a_call_is_in_flight_before_its_request_has_come() -> None:
    async def run() -> None:
        in_flight, sent = InFlight(), asyncio.Event()

        class Context:
            async def read(self) -> bytes:
                await sent.wait()
                return b"request"

        async def answer(data: bytes, _: Any) -> bytes:
            return data

        call = asyncio.ensure_future(single(answer, in_flight, ReceiveTimeout(10), 1 << 20)(unused(), Context()))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(in_flight.wait(10))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        sent.set()
        assert await call == b"request"
        await asyncio.wait_for(waiting, 30)

    asyncio.run(run())


def test_a_call_that_begins_as_the_last_one_ends_is_waited_for() -> None:
    async def run() -> None:
        in_flight = InFlight()
        waiting = asyncio.create_task(in_flight.wait(10))
        with in_flight:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0)
        with in_flight:
            await asyncio.sleep(0.1)
            assert not waiting.done()
        await asyncio.wait_for(waiting, 30)
        with in_flight:
            await asyncio.wait_for(in_flight.wait(0.05), 30)

    asyncio.run(run())


def test_late_requests_are_refused_while_their_share_is_full() -> None:
    class Full(RequestMemory):
        def is_full(self, *, waiting: bool) -> bool:
            return waiting

    async def never() -> bytes:
        await asyncio.sleep(60)
        return b""

    async def soon() -> bytes:
        return b"request"

    async def run() -> None:
        receive_timeout = ReceiveTimeout(30, Full(0))
        watching = asyncio.create_task(receive_timeout.watch())
        with pytest.raises(ResourceExhaustedError, match="max_request_bytes_in_flight"):
            await asyncio.wait_for(receive_timeout.first(never), 30)
        assert await receive_timeout.first(soon) == b"request"
        watching.cancel()

    asyncio.run(run())


def test_crowd_counts_from_when_nobody_was_late() -> None:
    request_memory = RequestMemory(50 << 20)
    assert not request_memory.is_full(waiting=True)
    held = b"x" * (60 << 20)
    assert request_memory.is_full(waiting=True)
    assert not request_memory.is_full(waiting=False)
    assert not request_memory.is_full(waiting=True), held[:1]


def test_a_request_without_memory_is_refused() -> None:
    class Context:
        code = details = None

        async def read(self) -> bytes:
            # As gRPC does when it puts the parts of a message together.
            raise MemoryError

        def set_trailing_metadata(self, metadata: Any) -> None:
            self.metadata = dict(metadata)

        def set_code(self, code: grpc.StatusCode) -> None:
            self.code = code

        def set_details(self, details: str) -> None:
            self.details = details

    async def answer(data: bytes, _: Any) -> bytes:
        return data

    context = Context()
    assert asyncio.run(single(answer, InFlight(), ReceiveTimeout(10), 1 << 20)(unused(), context)) == b""
    assert context.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "max_request_bytes_in_flight" in str(context.details)
    assert int(context.metadata["grpc-retry-pushback-ms"]) > 0
