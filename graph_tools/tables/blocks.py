# SPDX-License-Identifier: Apache-2.0
"""Read keys and rows of a table together in blocks, for parts with keys and for plain variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graph_tools.errors import UnreadableError
from graph_tools.model.tables import Part, SparseTable
from graph_tools.tensors import Array, ArrayTensor, TensorSource, element_bytes, rows_per_chunk

# Small enough that a block stays in the second-level cache while it is processed in several ways.
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a table; parts that were not requested are None.

    Attributes
    ----------
    begin : int
        Number of the first row, counted over all parts.
    size : int
    part : int
        Number of the part that contains the rows.
    keys : ndarray [n] int64 or object
        Keys; other integer types are converted to the int64 with which the graph looks them up.
    rows : ndarray [n, dim]
    frequencies : ndarray [n]
    """

    begin: int
    size: int
    part: int
    keys: Array | None = None
    rows: Array | None = None
    frequencies: Array | None = None

    def __len__(self) -> int:
        return self.size


@dataclass
class TableRows:
    """The rows of a table by key.

    Attributes
    ----------
    name, family : str
    parts : list of Part
        A plain variable has one part, whose keys are the row numbers.
    key_dtype : numpy dtype or None
        None: a plain variable.
    dim : int
    dtype : numpy dtype
    ignored : list of (ndarray [n] int64 or object, or None)
        For each part, the keys that the training system does not serve; sorted.
    """

    name: str
    family: str
    parts: list[Part]
    key_dtype: np.dtype[Any] | None
    dim: int
    dtype: np.dtype[Any]
    ignored: list[Array | None]

    @property
    def count(self) -> int:
        return sum(part.rows.shape[0] for part in self.parts)

    @property
    def plain(self) -> bool:
        return self.key_dtype is None

    @property
    def string_keys(self) -> bool:
        return self.key_dtype is not None and self.key_dtype.kind == "O"

    @property
    def source_bytes(self) -> int:
        key = 0 if self.key_dtype is None else element_bytes(self.key_dtype)
        return self.count * (key + self.dim * self.dtype.itemsize)

    @property
    def has_frequencies(self) -> bool:
        return bool(self.parts) and all(part.frequencies is not None for part in self.parts)

    def block_rows(self, limit: int = BLOCK_BYTES) -> int:
        """Return the number of rows that fit into `limit` bytes, at least 64."""
        return max(64, limit // max(1, self.dim * self.dtype.itemsize))

    def blocks(
        self, *, keys: bool = True, rows: bool = True, frequencies: bool = False, limit: int = BLOCK_BYTES
    ) -> Iterator[Block]:
        """Yield all rows in order, in blocks of at most `limit` bytes of rows."""
        begin = 0
        for number, part in enumerate(self.parts):
            wanted: dict[str, TensorSource] = {}
            if keys and not self.plain:
                wanted["keys"] = part.keys
            if rows:
                wanted["rows"] = part.rows
            if frequencies and part.frequencies is not None:
                wanted["frequencies"] = part.frequencies
            for size, found in _side_by_side(wanted, part.rows.shape[0], self.block_rows(limit)):
                if keys:
                    found["keys"] = np.arange(begin, begin + size) if self.plain else as_int64(found["keys"])
                yield Block(begin, size, number, **found)
                begin += size


def _side_by_side(wanted: dict[str, TensorSource], length: int, rows: int) -> Iterator[tuple[int, dict[str, Array]]]:
    """Yield (number of rows, blocks by name); if `wanted` is empty, numbers of rows only."""
    if not wanted:
        for begin in range(0, length, rows):
            yield min(rows, length - begin), {}
    for pieces in aligned(list(wanted.values()), rows):
        yield len(pieces[0]), dict(zip(wanted, pieces, strict=True))


def of_variable(name: str, tensor: TensorSource) -> TableRows:
    """Return the rows of a plain variable [n, dim]."""
    part = Part(ArrayTensor(np.empty(0, np.int64)), tensor)
    return TableRows(name, "tensorflow", [part], None, tensor.shape[1], tensor.dtype, [None])


def of_sparse_table(table: SparseTable) -> TableRows:
    """Return the rows of a sparse table."""
    ignored = [
        np.unique(as_int64(part.ignored)) if part.ignored is not None and len(part.ignored) else None
        for part in table.parts
    ]
    return TableRows(table.name, table.family, table.parts, table.key_dtype, table.dim, table.dtype, ignored)


def as_int64(keys: Array) -> Array:
    """Return integer keys as int64: int32 by value, uint64 by bits; strings stay unchanged."""
    if keys.dtype == object or keys.dtype == np.int64:
        return keys
    return keys.view(np.int64) if keys.dtype == np.uint64 else keys.astype(np.int64)


def aligned(sources: Sequence[TensorSource], rows: int) -> Iterator[tuple[Array, ...]]:
    """Yield blocks of several tensors of the same length side by side, of at most `rows` rows.

    Raises
    ------
    UnreadableError
        One of the tensors ends before the others.
    """
    readers = [source.chunks(min(rows, rows_per_chunk(source))) for source in sources]
    held: list[Array | None] = [None] * len(readers)
    while readers:
        for index, reader in enumerate(readers):
            block = held[index]
            while block is None or not len(block):
                block = next(reader, None)
                if block is None:
                    break
            held[index] = block
        ready = [block for block in held if block is not None]
        if not ready:
            return
        if len(ready) < len(held):
            lengths = ", ".join(str(source.shape[0]) for source in sources)
            raise UnreadableError(f"keys and rows of a table: lengths {lengths} or fewer, expected equal ones")
        count = min(len(block) for block in ready)
        yield tuple(block[:count] for block in ready)
        held = [block[count:] for block in ready]
