# SPDX-License-Identifier: Apache-2.0
"""Locate and read the bytes of a tensor: by position, not through a memory map, whose pages count as resident."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from graph_tools.bundle import checksum
from graph_tools.errors import UnreadableError
from graph_tools.tensors import Array

# A block is read and checksummed while it is in the second-level cache.
_BLOCK_BYTES = 512 << 10


@dataclass(frozen=True)
class Extent:
    """The bytes of a tensor in a shard.

    Attributes
    ----------
    label : str
        Name of the tensor in messages.
    offset, size : int [bytes]
    crc : int
        Masked CRC-32C of the tensor.
    """

    path: Path
    label: str
    offset: int
    size: int
    crc: int

    def damaged(self, found: str, expected: str) -> UnreadableError:
        return UnreadableError(f"{self.path}: {self.label}: {found}, expected {expected}")

    def check_file(self) -> None:
        """Raise UnreadableError if the shard is missing or too short."""
        try:
            size = self.path.stat().st_size
        except OSError as error:
            raise UnreadableError(
                f"{self.path}: {error.strerror}, expected the shard that contains {self.label}"
            ) from error
        if size < self.offset + self.size:
            raise self.damaged(f"a shard of {size} bytes", f"at least {self.offset + self.size}")

    def check_crc(self, crc: int) -> None:
        if checksum.mask(crc) != self.crc:
            raise self.damaged(f"checksum {checksum.mask(crc):#010x}", f"{self.crc:#010x}")


class ExtentFile:
    """The file of an extent, opened at the first read."""

    def __init__(self, extent: Extent) -> None:
        self.extent = extent
        self._file: int | None = None

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def read_into(self, out: Array, position: int) -> None:
        """Fill out [n] uint8 with the extent's bytes from `position` on."""
        extent = self.extent
        try:
            if self._file is None:
                self._file = os.open(extent.path, os.O_RDONLY)
            done = 0
            while done < len(out):
                count = os.preadv(self._file, [out[done:].data], extent.offset + position + done)
                if count == 0:
                    raise extent.damaged(
                        f"the shard ends at byte {position + done} of the tensor", f"{extent.size} bytes"
                    )
                done += count
        except OSError as error:
            raise extent.damaged(str(error.strerror), "a readable shard") from error

    def read_summed(self, out: Array, position: int, crc: int) -> int:
        """Fill out [n] uint8 from `position` on, and return `crc` extended by these bytes."""
        for begin in range(0, len(out), _BLOCK_BYTES):
            block = out[begin : begin + _BLOCK_BYTES]
            self.read_into(block, position + begin)
            crc = checksum.extend(crc, block)
        return crc
