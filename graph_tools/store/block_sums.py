# SPDX-License-Identifier: Apache-2.0
"""Compute the checksums of the blocks of a file, by which a part of it can be checked."""

from __future__ import annotations

from graph_tools.bundle import checksum
from graph_tools.bundle.output_file import OutputFile
from graph_tools.tensors import Array

BLOCK_BYTES = 65_536
# Written at a time, while it is in the second-level cache.
_PIECE_BYTES = 8 * BLOCK_BYTES


class SummedBlocks:
    """Appends bytes to a file, and computes the CRC-32C of each block of them."""

    def __init__(self, file: OutputFile) -> None:
        self.file = file
        self._sums: list[int] = []
        self._crc = self._filled = 0

    def write(self, raw: Array) -> None:
        """Append raw [n] uint8."""
        for begin in range(0, len(raw), _PIECE_BYTES):
            piece = raw[begin : begin + _PIECE_BYTES]
            self._sum(piece)
            self.file.write(piece)

    def _sum(self, raw: Array) -> None:
        while len(raw):
            part = raw[: BLOCK_BYTES - self._filled]
            self._crc = checksum.extend(self._crc, part)
            self._filled += len(part)
            raw = raw[len(part) :]
            if self._filled == BLOCK_BYTES:
                self._end_block()

    def _end_block(self) -> None:
        self._sums.append(self._crc)
        self._crc = self._filled = 0

    def finish(self) -> list[int]:
        """Return the checksums of all blocks, the last of which may be shorter."""
        if self._filled:
            self._end_block()
        return self._sums
