# SPDX-License-Identifier: Apache-2.0
"""Read files as blocks of bytes, plain or compressed, with memory that does not grow with the file."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.errors import UnreadableError
from graph_tools.tensors import Array, BaseTensor

BLOCK_BYTES = 4 << 20

_GZIP_MAGIC = b"\x1f\x8b"
_WINDOW_BITS = {"gzip": 31, "zlib": 15}


def compression_of(head: bytes) -> str:
    """Return `gzip`, `zlib` or `none` for a file that begins with these bytes."""
    if head[:2] == _GZIP_MAGIC:
        return "gzip"
    # RFC 1950: method 8 with a window of at most 32 KiB, and the first two bytes are a multiple of 31.
    if len(head) >= 2 and head[0] & 0x0F == 8 and head[0] >> 4 <= 7 and (head[0] << 8 | head[1]) % 31 == 0:
        return "zlib"
    return "none"


def read_head(path: Path, count: int) -> bytes:
    """Return the first bytes of a file as they are stored; fewer if the file is shorter."""
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror or error}, expected a file that can be read") from error


def check_folder(folder: Path, contents: str) -> None:
    """Raise `UnreadableError` if `folder` is not a folder; `contents` says what should be in it."""
    if not folder.is_dir():
        found = "not a folder" if folder.exists() else "does not exist"
        raise UnreadableError(f"{folder}: {found}, expected a folder of {contents}")


def file_size(path: Path) -> int:
    """Return the size of a file in bytes."""
    try:
        if not path.is_file():
            raise UnreadableError(f"{path}: {'not a file' if path.exists() else 'does not exist'}, expected a file")
        return path.stat().st_size
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror or error}, expected a file that can be read") from error


def byte_blocks(path: Path, compression: str = "none", block: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks of at most `block` bytes.

    Parameters
    ----------
    compression : str
        `none`, `gzip` (any number of members) or `zlib`.

    Raises
    ------
    UnreadableError
        The file cannot be read, or its compressed data is damaged or ends too early.
    """
    try:
        with path.open("rb") as file:
            stored = iter(lambda: file.read(block), b"")
            yield from stored if compression == "none" else _inflate(path, stored, compression, block)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror or error}, expected a file that can be read") from error


def _inflate(path: Path, stored: Iterable[bytes], compression: str, block: int) -> Iterator[bytes]:
    """Yield decompressed data; `max_length` limits the size of each block."""
    inflater = zlib.decompressobj(_WINDOW_BITS[compression])
    inside = False
    for data in stored:
        if not inside:
            data = data.lstrip(b"\0")
        while data:
            inside = True
            try:
                out = inflater.decompress(data, block)
            except zlib.error as error:
                raise UnreadableError(
                    f"{path}: damaged {compression} data ({error}), expected complete data"
                ) from error
            if out:
                yield out
            data = inflater.unconsumed_tail
            if inflater.eof:
                # A gzip file may have several members; zero bytes may follow each.
                data = inflater.unused_data.lstrip(b"\0")
                inflater = zlib.decompressobj(_WINDOW_BITS[compression])
                inside = False
    # `max_length` may have cut off the last call although no input is left.
    while inside and (out := inflater.decompress(b"", block)):
        yield out
    if inside and not inflater.eof:
        raise UnreadableError(f"{path}: the {compression} data ends too early, expected complete data")


def line_blocks(path: Path, compression: str, block: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Yield the lines of a file, many at a time; every block ends with a line feed."""
    rest = b""
    for data in byte_blocks(path, compression, block):
        end = data.rfind(b"\n") + 1
        if end:
            yield rest + data[:end]
            rest = data[end:]
        else:
            rest += data
    if rest:
        raise UnreadableError(f"{path}: ends with {rest[:40]!r}, expected every line to end with a line feed")


def record_blocks(path: Path, compression: str, skip: int, record: int) -> Iterator[bytes]:
    """Yield whole records of a file of fixed-length records after a header of `skip` bytes.

    A single line feed at the end is not a record: streams that end with `std::endl` leave one.
    """
    rest = b""
    to_skip = skip
    for stored in byte_blocks(path, compression):
        data = stored[to_skip:]
        to_skip -= len(stored) - len(data)
        data = rest + data if rest else data
        whole = len(data) // record * record
        if whole:
            yield data if whole == len(data) else data[:whole]
        rest = data[whole:]
    if rest not in (b"", b"\n"):
        raise UnreadableError(f"{path}: {len(rest)} bytes after the last record, expected records of {record} bytes")


class RawFileTensor(BaseTensor):
    """A file that contains only the elements of a tensor [n, ...], little-endian.

    Parameters
    ----------
    row_shape : tuple of int
        Shape of an element along the first axis; the length of that axis follows from the file's size.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], row_shape: tuple[int, ...] = ()) -> None:
        self.path = path
        self.dtype = dtype
        self.row_elements = int(np.prod(row_shape, dtype=np.int64))
        row_bytes = self.row_elements * dtype.itemsize
        size = file_size(path)
        if size % row_bytes:
            raise UnreadableError(
                f"{path}: {size} bytes, expected a multiple of {row_bytes} ({self.row_elements} x {dtype})"
            )
        self.shape = (size // row_bytes, *row_shape)

    def chunks(self, rows: int) -> Iterator[Array]:
        left = self.shape[0]
        try:
            with self.path.open("rb") as file:
                while left:
                    take = min(rows, left)
                    chunk = np.fromfile(file, self.dtype, take * self.row_elements)
                    if len(chunk) < take * self.row_elements:
                        raise UnreadableError(f"{self.path}: became shorter while it was read, expected no change")
                    yield chunk.reshape(take, *self.shape[1:])
                    left -= take
        except OSError as error:
            raise UnreadableError(f"{self.path}: {error.strerror or error}, expected a readable file") from error
