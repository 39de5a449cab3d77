# SPDX-License-Identifier: Apache-2.0
"""Write a sorted string table (see `table_reader`), uncompressed like TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO

from graph_tools.bundle import checksum, varints
from graph_tools.bundle.table_reader import FOOTER_BYTES, MAGIC

_BLOCK_BYTES = 64 << 10
_RESTART_EVERY = 16


class _Block:
    def __init__(self) -> None:
        self.data = bytearray()
        self.last = b""
        self._restarts: list[int] = []
        self._count = 0

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self._count % _RESTART_EVERY == 0:
            self._restarts.append(len(self.data))
        else:
            shared = _common_length(self.last, key)
        self.data += varints.encode(shared) + varints.encode(len(key) - shared) + varints.encode(len(value))
        self.data += key[shared:] + value
        self.last = key
        self._count += 1

    def content(self) -> bytes:
        restarts = self._restarts or [0]
        return bytes(self.data) + b"".join(place.to_bytes(4, "little") for place in [*restarts, len(restarts)])

    def write(self, out: BinaryIO) -> bytes:
        """Write the block with its trailer; return its handle."""
        body = self.content() + b"\0"
        handle = varints.encode(out.tell()) + varints.encode(len(body) - 1)
        out.write(body + checksum.mask(checksum.extend(0, body)).to_bytes(4, "little"))
        return handle


def write_table(out: BinaryIO, entries: Iterable[tuple[bytes, bytes]]) -> None:
    """Write entries with ascending keys to the beginning of a file."""
    block, index = _Block(), _Block()
    for key, value in entries:
        block.add(key, value)
        if len(block.data) >= _BLOCK_BYTES:
            index.add(block.last, block.write(out))
            block = _Block()
    if block.data:
        index.add(block.last, block.write(out))
    footer = _Block().write(out) + index.write(out)
    out.write(footer.ljust(FOOTER_BYTES - 8, b"\0") + MAGIC.to_bytes(8, "little"))


def _common_length(left: bytes, right: bytes) -> int:
    limit = min(len(left), len(right))
    return next((place for place in range(limit) if left[place] != right[place]), limit)
