# SPDX-License-Identifier: Apache-2.0
"""Convert gRPC calls to calls of the library and back: bytes, deadlines, metadata and statuses."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from processor import Answer, ProcessorError, RequestBytes, ResourceExhaustedError
from serving_proxy.host.call import HEADER_LENGTH, Call, Operation
from serving_proxy.host.engine import Engine
from serving_proxy.host.grpc_messages import take
from serving_proxy.host.grpc_methods import INFER
from serving_proxy.host.inflate import TooLargeError
from serving_proxy.host.provenance import provenance
from serving_proxy.host.receive_timeout import ReceiveTimeout
from serving_proxy.host.statuses import GRPC, NO_MEMORY, retry_after_us

Context = Any  # grpc.aio.ServicerContext, which is generic in messages that are bytes here
Unary = Callable[[AsyncIterator[bytes], Context], Awaitable[bytes]]
Stream = Callable[[AsyncIterator[bytes], Context], AsyncIterator[bytes]]

_SETTLE_SECONDS = 0.02
# Retry time for a request for which there was no memory before the library received it.
_CROWDED_RETRY_US = 1_000_000
# Fields of ModelStreamInferResponse, both length-delimited: error_message = 1, infer_response = 2.
_ERROR_TAG, _ANSWER_TAG = b"\x0a", b"\x12"


class InFlight:
    """Counts the calls in flight, except streams that are open but idle."""

    def __init__(self) -> None:
        self._number = 0
        self._none = asyncio.Event()
        self._none.set()

    def __enter__(self) -> None:
        self._number += 1
        self._none.clear()

    def __exit__(self, *_: object) -> None:
        self._number -= 1
        if not self._number:
            self._none.set()

    async def wait(self, seconds: float) -> None:
        """Wait until there are no calls in flight, or until this time [s] has passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                # Calls that the server has accepted but not begun may begin after the last one has ended.
                while True:
                    await self._none.wait()
                    await asyncio.sleep(_SETTLE_SECONDS)
                    if not self._number:
                        return


def unary(
    engine: Engine, operation: Operation, in_flight: InFlight, receive_timeout: ReceiveTimeout, limit: int
) -> Unary:
    """Return the handler of a method with one request and one response.

    It is registered as a streaming method: otherwise gRPC would leave a call open forever that the client closes
    without a request.
    """

    async def answer_request(data: bytes | bytearray, context: Context) -> bytes:
        answer = await engine.answer(read_call(operation, data, context))
        context.set_trailing_metadata(provenance(answer))
        return answer.data

    return single(answer_request, in_flight, receive_timeout, limit)


def single(
    answer_request: Callable[[bytes | bytearray, Context], Awaitable[bytes]],
    in_flight: InFlight,
    receive_timeout: ReceiveTimeout,
    limit: int,
) -> Unary:
    """Return a handler that receives its request as `unary` does, and leaves the response to `answer_request`."""

    async def handle(_: AsyncIterator[bytes], context: Context) -> bytes:
        # Counted from its beginning: a server that stops may have accepted the call, but not read its request yet.
        with in_flight, RequestBytes() as claim:
            try:
                message = await receive_timeout.first(context.read)
                return await answer_request(await take(message, limit, claim), context)
            except ProcessorError as error:
                fail(context, error)
            except MemoryError:
                fail(context, ResourceExhaustedError(NO_MEMORY))
            except TooLargeError:
                _refuse_large(context, limit)
            return b""

    return handle


def stream(engine: Engine, in_flight: InFlight, receive_timeout: ReceiveTimeout, limit: int) -> Stream:
    """Return the handler of ModelStreamInfer: requests are answered in order, a failed one with its message."""

    async def handle(_: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        answer: Answer | None = None
        try:
            async for data in receive_timeout.each(context.read):
                with in_flight, RequestBytes() as claim:
                    try:
                        answer = await engine.answer(read_call(INFER, await take(data, limit, claim), context))
                    except ProcessorError as error:
                        yield _field(_ERROR_TAG, str(error).encode())
                    except TooLargeError:
                        yield _field(_ERROR_TAG, _too_large(limit).encode())
                    else:
                        yield _field(_ANSWER_TAG, answer.data)
        except ResourceExhaustedError as error:
            fail(context, error)
            return
        except MemoryError:
            fail(context, ResourceExhaustedError(NO_MEMORY))
            return
        context.set_trailing_metadata(provenance(answer))

    return handle


def read_call(operation: Operation, data: bytes | bytearray, context: Context) -> Call:
    """Make a call from a message and its context.

    Raises
    ------
    InvalidArgumentError
        For invalid metadata.
    """
    call = Call(operation, data)
    left = context.time_remaining()
    if left is not None:
        call.deadline = time.monotonic() + left
    for key, value in context.invocation_metadata():
        if key != HEADER_LENGTH:  # only over HTTP
            call.take(key, value)
    return call


def fail(context: Context, error: ProcessorError) -> None:
    """Set the status of an error on a call, and the metadata of the version that refused it."""
    trailing = provenance(error.answer)
    retry = retry_after_us(error)
    if isinstance(error, ResourceExhaustedError) and error.answer is None:
        retry = _CROWDED_RETRY_US
    if retry:
        trailing.append(("grpc-retry-pushback-ms", str(-(-retry // 1000))))
    context.set_trailing_metadata(trailing)
    context.set_code(GRPC[error.code])
    context.set_details(str(error))


def _refuse_large(context: Context, limit: int) -> None:
    context.set_code(grpc.StatusCode.RESOURCE_EXHAUSTED)
    context.set_details(_too_large(limit))


def _too_large(limit: int) -> str:
    return f"request: too large, expected at most {limit} bytes"


def _field(tag: bytes, data: bytes) -> bytes:
    """Encode one length-delimited field, as protobuf does."""
    size = bytearray()
    left = len(data)
    while left > 0x7F:
        size.append(left & 0x7F | 0x80)
        left >>= 7
    size.append(left)
    return b"".join((tag, size, data))
