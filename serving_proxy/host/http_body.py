# SPDX-License-Identifier: Apache-2.0
"""The body of an HTTP request: so large, so slow and so compressed as the host puts up with."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]

# Beyond it a body is decompressed on another thread.
_SMALL = 65536
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class BodyError(Exception):
    """A body that is refused, with an HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class DisconnectedError(Exception):
    """The client is gone: nobody is left to be answered."""


async def read_body(receive: Receive, length: bytes | None, limit: int, seconds: float) -> bytes:
    """Read a body.

    Parameters
    ----------
    length : bytes or None
        The header Content-Length.
    limit : int [bytes]
    seconds : float [s]
        For all of it.

    Raises
    ------
    BodyError
        413 if it is too large, 408 if it takes too long.
    DisconnectedError
        If the client goes away before its end.
    """
    if length is not None and length.isdigit() and (len(length) > 18 or int(length) > limit):
        raise _too_large(limit)
    try:
        async with asyncio.timeout(seconds):
            message = await receive()
            first: bytes = message.get("body", b"")
            if not message.get("more_body", False) and message["type"] == "http.request":
                if len(first) > limit:
                    raise _too_large(limit)
                return first
            return await _read_rest(receive, message, limit)
    except TimeoutError as error:
        raise BodyError(408, f"body: not complete after {seconds:g} s, expected all of it") from error


async def _read_rest(receive: Receive, message: Message, limit: int) -> bytes:
    body = bytearray()
    while True:
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        body += message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return bytes(body)
        message = await receive()


async def decompress(body: bytes, encoding: bytes, limit: int) -> bytes:
    """Undo a Content-Encoding: gzip or deflate.

    Raises
    ------
    BodyError
        415 for another encoding, 400 for what is damaged, 413 for what becomes too large.
    """
    if encoding.strip().lower() not in (b"gzip", b"x-gzip", b"deflate"):
        name = encoding[:40].decode("latin-1")
        raise BodyError(415, f"content-encoding: '{name}', expected gzip, deflate or none")
    if len(body) <= _SMALL:
        return _inflate(body, min(limit, 16 * _SMALL)) if limit <= 16 * _SMALL else await _inflate_small(body, limit)
    return await asyncio.to_thread(_inflate, body, limit)


async def _inflate_small(body: bytes, limit: int) -> bytes:
    try:
        return _inflate(body, 16 * _SMALL)
    except BodyError as error:
        # A small body that becomes a large one.
        if error.status != 413:
            raise
    return await asyncio.to_thread(_inflate, body, limit)


def _inflate(body: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        data = inflater.decompress(body, limit + 1)
    except zlib.error as error:
        raise BodyError(400, f"body: {error}, expected what the content-encoding says") from error
    if len(data) > limit:
        raise _too_large(limit)
    if not inflater.eof or inflater.unused_data:
        raise BodyError(400, f"body: {len(body)} bytes of compressed data, expected all of it and nothing behind")
    return data


def _too_large(limit: int) -> BodyError:
    return BodyError(413, f"body: too large, expected at most {limit} bytes")
