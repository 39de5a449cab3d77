# SPDX-License-Identifier: Apache-2.0
"""Read string tensors: the lengths of all elements as varints, a checksum of the lengths, the bytes of all elements.

The checksum of the lengths covers four bytes for each length (eight for lengths of 2^32 or more), not the varints. The
checksum of the tensor covers the same bytes, the stored checksum and the bytes of the elements.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from graph_tools.bundle import checksum, varints
from graph_tools.bundle.extent import Extent, ExtentFile
from graph_tools.bundle.stored import Cursor, StoredTensor
from graph_tools.tensors import CHUNK_BYTES, Array

LENGTHS_CRC_BYTES = 4
_LENGTH_BLOCK_BYTES = 1 << 20
# Memory of a bytes object and the pointer to it, in addition to its bytes.
_OBJECT_BYTES = 48


def extend_by_lengths(crc: int, lengths: Array) -> int:
    """Return `crc` extended by lengths [n] int64 in their checksummed form."""
    if not len(lengths) or lengths.max() < 1 << 32:
        return checksum.extend(crc, lengths.astype("<u4"))
    return checksum.extend(crc, b"".join(n.to_bytes(4 if n < 1 << 32 else 8, "little") for n in lengths.tolist()))


@dataclass(frozen=True)
class _Layout:
    """Where the elements' bytes begin, and the checksum of everything before them."""

    begin: int
    crc: int


class StringTensor(StoredTensor):
    """Strings: elements are `bytes`."""

    def cursor(self) -> Cursor:
        return _StringCursor(self, self._layout())

    def _layout(self) -> _Layout:
        """Read all lengths and check them."""
        extent = self.extent
        begin = total = crc = 0
        for lengths, used in _length_blocks(extent, math.prod(self.shape)):
            if lengths.max() > extent.size:
                raise extent.damaged(f"a string of {lengths.max()} bytes", f"at most {extent.size}")
            begin += used
            total += int(lengths.sum())
            crc = extend_by_lengths(crc, lengths)
        if begin + LENGTHS_CRC_BYTES + total != extent.size:
            raise extent.damaged(
                f"strings of {total} bytes behind {begin} bytes of lengths", f"{extent.size} bytes in all"
            )
        stored = np.empty(LENGTHS_CRC_BYTES, np.uint8)
        file = ExtentFile(extent)
        try:
            file.read_into(stored, begin)
        finally:
            file.close()
        if stored.tobytes() != checksum.mask(crc).to_bytes(LENGTHS_CRC_BYTES, "little"):
            expected = int.from_bytes(stored.tobytes(), "little")
            raise extent.damaged(f"checksum {checksum.mask(crc):#010x} of the lengths", f"{expected:#010x}")
        return _Layout(begin + LENGTHS_CRC_BYTES, checksum.extend(crc, stored))


def _length_blocks(extent: Extent, count: int) -> Generator[tuple[Array, int], None, None]:
    """Yield the lengths of `count` strings, in blocks [n] int64, n > 0, with the number of encoded bytes."""
    file = ExtentFile(extent)
    try:
        rest, position = np.empty(0, np.uint8), 0
        while count:
            raw = np.empty(min(_LENGTH_BLOCK_BYTES, extent.size - position), np.uint8)
            file.read_into(raw, position)
            position += len(raw)
            block = np.concatenate([rest, raw])
            ends = np.flatnonzero(block < 0x80)[:count]
            if not len(ends) and (len(block) > varints.MAX_BYTES or not len(raw)):
                raise extent.damaged("lengths of strings that do not end", f"{count} more")
            used = int(ends[-1]) + 1 if len(ends) else 0
            rest = block[used:]
            count -= len(ends)
            if used:
                yield _decode(extent, block[:used]), used
    finally:
        file.close()


def _decode(extent: Extent, raw: Array) -> Array:
    try:
        return varints.decode_array(raw)
    except ValueError as error:
        raise extent.damaged(str(error), "lengths of strings") from error


class _StringCursor:
    """Reads the lengths and the bytes of an extent in parallel."""

    def __init__(self, tensor: StringTensor, layout: _Layout) -> None:
        self._extent = tensor.extent
        self._row_shape = tensor.shape[1:]
        self._lengths = _length_blocks(tensor.extent, math.prod(tensor.shape))
        self._ready = np.empty(0, np.int64)
        self._file = ExtentFile(tensor.extent)
        self._position = layout.begin
        self._crc = layout.crc

    def fit(self, rows: int) -> int:
        width = math.prod(self._row_shape)
        if not width:
            return rows
        # A larger number of strings does not fit, even if they are empty.
        count = min(rows * width, max(width, CHUNK_BYTES // _OBJECT_BYTES))
        costs = np.cumsum(self._peek(count) + _OBJECT_BYTES)
        return max(1, int(np.searchsorted(costs, CHUNK_BYTES, side="right")) // width)

    def take(self, rows: int) -> Array:
        count = rows * math.prod(self._row_shape)
        lengths = self._peek(count)
        self._ready = self._ready[count:]
        ends = np.cumsum(lengths)
        raw = np.empty(int(ends[-1]) if count else 0, np.uint8)
        self._crc = self._file.read_summed(raw, self._position, self._crc)
        self._position += len(raw)
        # Empty strings may follow; they change neither position nor checksum.
        if self._position == self._extent.size:
            self._extent.check_crc(self._crc)
        data = raw.tobytes()
        out = np.empty(count, object)
        out[:] = [data[begin:end] for begin, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True)]
        return out.reshape(rows, *self._row_shape)

    def close(self) -> None:
        self._file.close()
        self._lengths.close()

    def _peek(self, count: int) -> Array:
        """Return the lengths of the next `count` elements."""
        while len(self._ready) < count:
            lengths, _ = next(self._lengths)
            self._ready = np.concatenate([self._ready, lengths])
        return self._ready[:count]
