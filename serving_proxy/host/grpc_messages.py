# SPDX-License-Identifier: Apache-2.0
"""Compressed and large gRPC messages.

gRPC would inflate a message to any size. So gRPC is told to leave messages compressed, and they are inflated here, as
far as there is memory. Compressed bytes are recognized by their beginning, which no request has: the first byte of gzip
would be a field of a wire type that does not exist, that of zlib a field 15, which no request has.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from processor import InvalidArgumentError, RequestBytes
from serving_proxy.host.inflate import InflateError, inflate

# Memory for larger messages is claimed.
_SMALL = 65536
# Limit for messages of other servicers.
_OWN_LIMIT = 65536
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


def is_compressed(data: bytes) -> bool:
    """Return whether a message is compressed by gzip or deflate."""
    if len(data) < 2:
        return False
    return data[:2] == b"\x1f\x8b" or (data[0] == 0x78 and (data[0] << 8 | data[1]) % 31 == 0)


async def take(data: bytes, limit: int, claim: RequestBytes) -> bytes | bytearray:
    """Claim memory for a message, and inflate it if it is compressed.

    Raises
    ------
    InvalidArgumentError
        For a damaged message, or one that never fits.
    ResourceExhaustedError
        If there is no memory for it now.
    TooLargeError
        If it becomes larger than `limit`.
    """
    if len(data) > _SMALL:
        claim.grow_to(len(data))
    if not is_compressed(data):
        return data
    try:
        return await inflate(data, limit, claim)
    except InflateError as error:
        raise InvalidArgumentError(f"request: {error}, expected what its grpc-encoding says") from error


class Inflating:
    """Wraps a server to which servicers add themselves: inflates their requests, and refuses malformed ones."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Add handlers that inflate requests before they deserialize them."""
        self._server.add_generic_rpc_handlers(tuple(_Inflating(handler) for handler in handlers))

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Do nothing: these are the generic handlers again."""


class _Inflating:
    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def service_name(self) -> Any:
        return self._handler.service_name()

    def service(self, details: Any) -> Any:
        found = self._handler.service(details)
        if found is None or found.request_deserializer is None:
            return found
        read = found.request_deserializer

        def inflate_and_read(data: bytes) -> Any:
            try:
                if is_compressed(data):
                    data = zlib.decompressobj(_GZIP_OR_ZLIB).decompress(data, _OWN_LIMIT)
                return read(data)
            except (zlib.error, DecodeError):
                # An exception here would be reported to clients with the name of its class.
                return _MALFORMED

        return _refusing(found)._replace(request_deserializer=inflate_and_read)


# Used instead of a malformed request.
_MALFORMED = object()


def _refusing(found: Any) -> Any:
    """Return a handler that ends calls with a malformed request with INTERNAL, as gRPC does elsewhere."""

    async def check(request: Any, context: Any) -> None:
        if request is _MALFORMED:
            await context.abort(grpc.StatusCode.INTERNAL, "request: malformed or truncated bytes, expected its message")

    async def answer_single(request: Any, context: Any) -> Any:
        await check(request, context)
        return await (found.unary_stream if found.response_streaming else found.unary_unary)(request, context)

    async def checked(requests: Any, context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            await check(request, context)
            yield request

    async def answer_stream(requests: Any, context: Any) -> AsyncIterator[Any]:
        async for answer in found.stream_stream(checked(requests, context), context):
            yield answer

    if found.request_streaming:
        return found._replace(stream_stream=answer_stream)
    return (
        found._replace(unary_stream=answer_single)
        if found.response_streaming
        else found._replace(unary_unary=answer_single)
    )
