# SPDX-License-Identifier: Apache-2.0
"""Compressed requests, inflated piece by piece as there is room for them."""

from __future__ import annotations

import asyncio
import zlib

from processor import RequestBytes

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
# What is inflated, or fed, at a time.
_PIECE = 1 << 20
_FEED = 1 << 16
# Beyond it another thread inflates.
_SMALL = 65536


class InflateError(Exception):
    """Bytes that are not what they should be."""


class TooLargeError(Exception):
    """A request that becomes larger than the host takes."""


async def inflate(data: bytes | bytearray, limit: int, claim: RequestBytes) -> bytearray:
    """Undo gzip or deflate.

    Parameters
    ----------
    limit : int [bytes]
        Of the result.
    claim : RequestBytes
        Grows with the result, beyond what it holds.

    Raises
    ------
    InflateError
        For what is damaged, or has something behind its end.
    TooLargeError
        For more than `limit`.
    ResourceExhaustedError, InvalidArgumentError
        As the claim.
    """
    inflater = Inflater(limit, claim)
    if len(data) <= _SMALL and inflater.feed(data, _SMALL):
        return inflater.result(len(data))
    rest = asyncio.ensure_future(asyncio.to_thread(_inflate_rest, inflater, data))
    try:
        return await asyncio.shield(rest)
    except asyncio.CancelledError:
        # The claim is given back by whoever gave it, and must not grow any more then.
        inflater.stop()
        await asyncio.wait((rest,))
        rest.exception()
        raise


def _inflate_rest(inflater: Inflater, data: bytes | bytearray) -> bytearray:
    inflater.feed(data, None)
    return inflater.result(len(data))


class Inflater:
    """Inflates one request; `inflate` says what its arguments and exceptions are."""

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
        """Have whoever inflates give up, with InflateError."""
        self._stopped = True

    def feed(self, data: bytes | bytearray, most: int | None) -> bool:
        """Inflate until nothing is left, or there are `most` bytes; return whether nothing is left."""
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
            raise InflateError("nobody waits for it")
        room = min(_PIECE, max(_FEED, len(self._out)), self._limit + 1 - len(self._out))
        # The piece, and the whole that it is added to, which may move to grow.
        self._claim.grow_to(self._before + len(self._out) + len(self._out) // 8 + 2 * room)
        try:
            piece = self._inflater.decompress(self._rest, room)
        except zlib.error as error:
            raise InflateError("damaged data") from error
        self._out += piece
        # What had no room is kept within, though all that was fed is consumed.
        self._pending = len(piece) == room
        self._rest = self._inflater.unconsumed_tail
        if len(self._out) > self._limit:
            raise TooLargeError

    def result(self, size: int) -> bytearray:
        """Return all of it; `size`: of the compressed bytes."""
        if not self._inflater.eof or self._inflater.unused_data or self._fed < size:
            raise InflateError(f"{size} bytes of compressed data, expected all of it and nothing behind")
        return self._out
