# SPDX-License-Identifier: Apache-2.0
"""Read sorted string tables, as LevelDB defines them and TensorFlow uses them for a bundle's index.

The file consists of data blocks, an index block (last key of each data block -> its position) and a footer of 48 bytes.
Each block is followed by a byte, 0 for uncompressed or 1 for Snappy, and a masked CRC-32C of both. Within a block, a
key shares a prefix with the key before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from graph_tools.bundle import checksum, snappy, varints
from graph_tools.errors import UnreadableError

MAGIC = 0xDB4775248B80FB57
FOOTER_BYTES = 48
TRAILER_BYTES = 5


def read_table(path: Path) -> list[tuple[bytes, bytes]]:
    """Return all keys and values, in order; every block is checked."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}, expected the index of a tensor bundle") from error
    if len(data) < FOOTER_BYTES:
        raise UnreadableError(f"{path}: {len(data)} bytes, expected an index with a footer of {FOOTER_BYTES} bytes")
    magic = int.from_bytes(data[-8:], "little")
    if magic != MAGIC:
        raise UnreadableError(
            f"{path}: its last eight bytes are {magic:#018x}, expected {MAGIC:#018x}: truncated or no index"
        )
    try:
        return list(_entries(data))
    except ValueError as error:
        raise UnreadableError(f"{path}: damaged index: {error}") from error


def _entries(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    footer = data[-FOOTER_BYTES:]
    _, _, position = _handle(footer, 0)
    offset, size, _ = _handle(footer, position)
    previous: bytes | None = None
    for _, handle in _block_entries(_block(data, offset, size)):
        offset, size, _ = _handle(handle, 0)
        for key, value in _block_entries(_block(data, offset, size)):
            if previous is not None and key <= previous:
                raise ValueError(f"key {key!r} after {previous!r}, expected rising keys")
            previous = key
            yield key, value


def _handle(data: bytes, position: int) -> tuple[int, int, int]:
    offset, position = varints.decode(data, position)
    size, position = varints.decode(data, position)
    return offset, size, position


def _block(data: bytes, offset: int, size: int) -> bytes:
    end = offset + size
    if end + TRAILER_BYTES > len(data) - FOOTER_BYTES:
        raise ValueError(
            f"a block of {size} bytes at {offset}, expected it before the footer at {len(data) - FOOTER_BYTES}"
        )
    stored = int.from_bytes(data[end + 1 : end + TRAILER_BYTES], "little")
    found = checksum.mask(checksum.extend(0, data[offset : end + 1]))
    if stored != found:
        raise ValueError(f"checksum {found:#010x} of the block at {offset}, expected {stored:#010x}")
    if data[end] > 1:
        raise ValueError(f"compression {data[end]} of the block at {offset}, expected 0 (none) or 1 (Snappy)")
    return snappy.decompress(data[offset:end]) if data[end] else data[offset:end]


def _block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    # After the entries: restart points of four bytes each, then their number. Reading in order needs neither.
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    if len(block) < 4 or end < 0:
        raise ValueError(f"{restarts} restart points in a block of {len(block)} bytes")
    key, position = b"", 0
    while position < end:
        shared, position = varints.decode(block, position)
        unshared, position = varints.decode(block, position)
        length, position = varints.decode(block, position)
        if shared > len(key) or position + unshared + length > end:
            raise ValueError("an entry beyond the end of its block")
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + length]
        position += length
