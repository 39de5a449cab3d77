# SPDX-License-Identifier: Apache-2.0
"""Read the body of an HTTP request, with limits for size and time, and decompress it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from processor import InvalidArgumentError, RequestBytes, ResourceExhaustedError
from serving_proxy.host.inflate import InflateError, TooLargeError, inflate

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Body = bytes | bytearray

# First memory claim for a body that comes in pieces; the claim doubles when it is exceeded.
_FIRST_CLAIM = 65536


class BodyError(Exception):
    """A body that is refused, with an HTTP status.

    Attributes
    ----------
    retry_seconds : int or None [s]
        When the client may retry.
    """

    def __init__(self, status: int, message: str, retry_seconds: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_seconds = retry_seconds


class DisconnectedError(Exception):
    """The client has disconnected, so no response is needed."""


async def read_body(receive: Receive, length: bytes | None, limit: int, seconds: float, claim: RequestBytes) -> Body:
    """Read a body.

    Parameters
    ----------
    length : bytes or None
        The header Content-Length.
    limit : int [bytes]
    seconds : float [s]
        Time for the whole body.
    claim : RequestBytes
        Grows with a body that comes in pieces.

    Raises
    ------
    BodyError
        413 if it is too large, 408 if it takes too long, 429 if there is no memory for it now.
    DisconnectedError
        If the client disconnects before the end of the body.
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
            return await _read_rest(receive, message, limit, claim)
    except TimeoutError as error:
        raise BodyError(408, f"body: not complete after {seconds:g} s, expected all of it") from error


async def _read_rest(receive: Receive, message: Message, limit: int, claim: RequestBytes) -> bytearray:
    body = bytearray()
    while True:
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        piece = message.get("body", b"")
        size = len(body) + len(piece)
        if size > limit:
            raise _too_large(limit)
        if size > claim.held:
            try:
                claim.grow_to(max(_FIRST_CLAIM, min(size + size // 2, limit)))
            except (ResourceExhaustedError, InvalidArgumentError) as error:
                raise no_room(error) from error
        body += piece
        if not message.get("more_body", False):
            return body
        message = await receive()


async def decompress(body: Body, encoding: bytes, limit: int, claim: RequestBytes) -> bytearray:
    """Undo a Content-Encoding: gzip or deflate.

    Raises
    ------
    BodyError
        415 for another encoding, 400 for damaged data, 413 if the result is too large, 429 if there is no memory now.
    """
    if encoding.strip().lower() not in (b"gzip", b"x-gzip", b"deflate"):
        name = encoding[:40].decode("latin-1")
        raise BodyError(415, f"content-encoding: '{name}', expected gzip, deflate or none")
    try:
        return await inflate(body, limit, claim)
    except InflateError as error:
        raise BodyError(400, f"body: {error}, expected what the content-encoding says") from error
    except TooLargeError as error:
        raise _too_large(limit) from error
    except (ResourceExhaustedError, InvalidArgumentError) as error:
        raise no_room(error) from error


def no_room(error: ResourceExhaustedError | InvalidArgumentError) -> BodyError:
    """Return the error for a body for which there is no memory now, or never."""
    if isinstance(error, ResourceExhaustedError):
        return BodyError(429, str(error), retry_seconds=1)
    return BodyError(413, str(error))


def _too_large(limit: int) -> BodyError:
    return BodyError(413, f"body: too large, expected at most {limit} bytes")
