# SPDX-License-Identifier: Apache-2.0
"""Inflate compressed requests piece by piece, as far as there is memory for them."""

from __future__ import annotations

import asyncio
import zlib

from processor import RequestBytes

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
# Sizes of the pieces that are inflated, and that are fed.
_PIECE = 1 << 20
_FEED = 1 << 16
# Larger requests are inflated on another thread.
_SMALL = 65536


class InflateError(Exception):
    """The compressed data are not valid."""


class TooLargeError(Exception):
    """A request that becomes larger than the host accepts."""


async def inflate(data: bytes | bytearray, limit: int, claim: RequestBytes) -> bytearray:
    """Undo gzip or deflate.

    Parameters
    ----------
    limit : int [bytes]
        Largest size of the result.
    claim : RequestBytes
        Grows by the size of the result.

    Raises
    ------
    InflateError
        For damaged data, or for bytes behind their end.
    TooLargeError
        For more than `limit`.
    ResourceExhaustedError, InvalidArgumentError
        From the claim.
    """
    inflater = Inflater(limit, claim)
    if len(data) <= _SMALL and inflater.feed(data, _SMALL):
        return inflater.result(len(data))
    rest = asyncio.ensure_future(asyncio.to_thread(_inflate_rest, inflater, data))
    try:
        return await asyncio.shield(rest)
    except asyncio.CancelledError:
        # The caller releases the claim afterwards, so it must not grow any more.
        inflater.stop()
        await asyncio.wait((rest,))
        rest.exception()
        raise


def _inflate_rest(inflater: Inflater, data: bytes | bytearray) -> bytearray:
    inflater.feed(data, None)
    return inflater.result(len(data))


class Inflater:
    """Inflates one request; `inflate` describes the arguments and exceptions."""

    def __init__(self, limit: int, claim: RequestBytes) -> None:
        self._limit = limit
        self._claim = claim
        self._before = claim.held
        self._inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._fed = 0
        self._rest = b""
        self._out = bytearray()
        self._pending = False
        self._stopped = False

    def stop(self) -> None:
        """Let the running inflation end with InflateError."""
        self._stopped = True

    def feed(self, data: bytes | bytearray, most: int | None) -> bool:
        """Inflate until no data are left, or until there are `most` bytes; return whether no data are left."""
        view = memoryview(data)
        while not self._inflater.eof:
            if not self._rest and not self._pending:
                if self._fed == len(data):
                    break
                self._rest = bytes(view[self._fed : self._fed + _FEED])
                self._fed += len(self._rest)
            if most is not None and len(self._out) >= most:
                return False
            self._inflate_piece()
        return True

    def _inflate_piece(self) -> None:
        if self._stopped:
            raise InflateError("the request was cancelled")
        room = min(_PIECE, max(_FEED, len(self._out)), self._limit + 1 - len(self._out))
        # Memory for the piece and for the result, which may be moved to grow.
        self._claim.grow_to(self._before + len(self._out) + len(self._out) // 8 + 2 * room)
        try:
            piece = self._inflater.decompress(self._rest, room)
        except zlib.error as error:
            raise InflateError("damaged data") from error
        self._out += piece
        # Output that had no room is kept inside zlib, although all input is consumed.
        self._pending = len(piece) == room
        self._rest = self._inflater.unconsumed_tail
        if len(self._out) > self._limit:
            raise TooLargeError

    def result(self, size: int) -> bytearray:
        """Return the whole result; `size`: number of compressed bytes."""
        if not self._inflater.eof or self._inflater.unused_data or self._fed < size:
            raise InflateError(f"{size} bytes of compressed data, expected all of it and nothing behind")
        return self._out
