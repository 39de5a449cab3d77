# SPDX-License-Identifier: Apache-2.0
"""Read one file of a TensorNet sparse table, text or binary, usually compressed."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.errors import UnreadableError
from graph_tools.readers import tensornet_layout as layouts
from graph_tools.readers.byte_stream import byte_blocks, compression_of, line_blocks, read_head, record_blocks
from graph_tools.tensors import Array

_MARK = b"opt_name:"
_LARGEST_DIM = 1 << 16
# Text is parsed at about 100 MB/s; larger blocks would only use more memory.
_TEXT_BLOCK = 1 << 20
_HEAD_BLOCK = 1 << 16


def _compression(path: Path) -> str:
    return compression_of(read_head(path, 2))


def is_text(path: Path) -> bool:
    """Return whether a block is text, which begins with the name of the optimizer."""
    head = b""
    for data in byte_blocks(path, _compression(path), _HEAD_BLOCK):
        head += data
        if len(head) >= len(_MARK):
            break
    if len(head) < 4:
        raise UnreadableError(f"{path}: {len(head)} bytes, expected at least the dimension")
    return head.startswith(_MARK)


@dataclass
class TextBlock:
    """A block of text: a header of two lines, then one line of tab-separated values for each key.

    Attributes
    ----------
    first_line : bytes
        The first line of values; empty if there is none.
    fraction_last : bool
        True if one of the first lines has a fraction in its last column.
    layout : numpy dtype
        Known after `choose`.
    count : int
        Known after `scan`.
    """

    path: Path
    compression: str
    optimizer: str
    dim: int
    first_line: bytes
    fraction_last: bool
    layout: np.dtype[Any] = field(default_factory=lambda: np.dtype("<f4"))
    count: int = 0

    @classmethod
    def open(cls, path: Path) -> TextBlock:
        """Read the header and the first values."""
        compression = _compression(path)
        head = b""
        for lines in line_blocks(path, compression, _HEAD_BLOCK):
            head += lines
            if head.count(b"\n") > 2:
                break
        header = head.split(b"\n")
        if len(header) < 3 or not header[0].startswith(_MARK) or not header[1].startswith(b"dim:"):
            raise UnreadableError(f"{path}: begins with {head[:40]!r}, expected lines opt_name: and dim:")
        optimizer = header[0].removeprefix(_MARK).strip().decode(errors="replace")
        if optimizer not in layouts.OPTIMIZERS:
            raise UnreadableError(f"{path}: opt_name {optimizer!r}, expected one of {', '.join(layouts.OPTIMIZERS)}")
        written = header[1].removeprefix(b"dim:").strip()
        dim = int(written) if written.isdigit() else 0
        _check_dim(path, dim)
        values = [line for line in header[2:] if line]
        fraction = any(not line.endswith(b"\t") and b"." in line.rsplit(b"\t", 1)[-1] for line in values)
        return cls(path, compression, optimizer, dim, values[0] if values else b"", fraction)

    def choose(self, version_first: bool) -> None:
        """Set the layout that fits the number of columns of the first line."""
        if not self.first_line:
            return
        columns = len(self.first_line.rstrip(b"\t").split(b"\t"))
        layout = layouts.text_layout(self.optimizer, self.dim, columns, version_first)
        if layout is None:
            raise UnreadableError(
                f"{self.path}: {columns} columns, expected those of {self.optimizer} of dimension {self.dim}"
            )
        self.layout = layout

    def scan(self) -> None:
        """Count the lines of values and check that each has the same number of tabs as the first one."""
        tabs = self.first_line.count(b"\t")
        for number, lines in self._values():
            view = np.frombuffer(lines, np.uint8)
            ends = np.flatnonzero(view == 0x0A)
            lengths = np.diff(ends, prepend=-1) - 1
            seen = np.searchsorted(np.flatnonzero(view == 0x09), ends)
            wrong = np.flatnonzero((np.diff(seen, prepend=0) != tabs) & (lengths > 0))
            if len(wrong):
                raise UnreadableError(
                    f"{self.path}: line {number + int(wrong[0])} has other columns than the first, expected {tabs} tabs"
                )
            self.count += int((lengths > 0).sum())

    def records(self) -> Iterator[Array]:
        """Yield the values as structured arrays of `layout`."""
        if not self.count:
            return
        trailing = self.first_line.endswith(b"\t")
        for number, lines in self._values():
            lines = lines.replace(b"\t\n", b"\n") if trailing else lines
            if not lines.strip():
                continue
            try:
                records = np.loadtxt(
                    io.BytesIO(lines), self.layout, delimiter="\t", comments=None, ndmin=1, encoding="latin1"
                )
            except ValueError as error:
                raise UnreadableError(f"{self.path}: {error} (counted from line {number}), expected numbers") from error
            if "dim" in (self.layout.names or ()) and (records["dim"] != self.dim).any():
                found = int(records["dim"][records["dim"] != self.dim][0])
                raise UnreadableError(f"{self.path}: a row of dimension {found}, expected {self.dim}")
            yield records

    def _values(self) -> Iterator[tuple[int, bytes]]:
        """Yield lines of values, many at a time, with the number of the first line within the file."""
        number = 1
        for lines in line_blocks(self.path, self.compression, _TEXT_BLOCK):
            while number <= 2 and lines:
                lines = lines[lines.index(b"\n") + 1 :]
                number += 1
            if lines:
                yield number, lines
                number += lines.count(b"\n")


@dataclass
class BinaryBlock:
    """A block of fixed-length records after the dimension.

    Attributes
    ----------
    size : int
        Bytes without compression.
    tail : bytes
        The last byte; a line feed at the end of a stream is not a record.
    head : bytes
        The first records.
    """

    path: Path
    compression: str
    dim: int
    size: int
    tail: bytes
    head: bytes
    layout: np.dtype[Any] = field(default_factory=lambda: np.dtype("<f4"))
    count: int = 0

    @classmethod
    def open(cls, path: Path) -> BinaryBlock:
        """Read the block once to find its size."""
        compression = _compression(path)
        size = 0
        head = tail = b""
        for data in byte_blocks(path, compression):
            head = head if size else data[: 4 + (1 << 16)]
            size += len(data)
            tail = data[-1:]
        if size < 4:
            raise UnreadableError(f"{path}: {size} bytes, expected at least the dimension")
        (dim,) = struct.unpack_from("<i", head)
        _check_dim(path, dim)
        return cls(path, compression, dim, size, tail, head[4:])

    def _whole_records(self, layout: np.dtype[Any]) -> int | None:
        """Return the bytes of all records if they are whole records of this layout, else None."""
        body = self.size - 4
        if body % layout.itemsize == 0:
            return body
        if (body - 1) % layout.itemsize == 0 and self.tail == b"\n":
            return body - 1
        return None

    def fits(self, layout: np.dtype[Any]) -> bool:
        """Return whether the block consists of whole records of a layout."""
        return self._whole_records(layout) is not None

    def is_plausible(self, layout: np.dtype[Any]) -> bool:
        """Return whether the first records are plausible in a layout."""
        count = min(len(self.head), self._whole_records(layout) or 0) // layout.itemsize
        return layouts.is_plausible(np.frombuffer(self.head, layout, count))

    def choose(self, layout: np.dtype[Any]) -> None:
        """Set the layout, which must fit."""
        self.layout = layout
        self.count = (self._whole_records(layout) or 0) // layout.itemsize

    def records(self) -> Iterator[Array]:
        """Yield the records as structured arrays of `layout`."""
        for data in record_blocks(self.path, self.compression, 4, self.layout.itemsize):
            yield np.frombuffer(data, self.layout)


def _check_dim(path: Path, dim: int) -> None:
    if not 0 < dim <= _LARGEST_DIM:
        raise UnreadableError(f"{path}: dimension {dim}, expected 1 to {_LARGEST_DIM}")
