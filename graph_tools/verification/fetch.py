# SPDX-License-Identifier: Apache-2.0
"""Find rows in tables that are read as streams, in one pass for all wanted keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graph_tools.errors import UnreadableError
from graph_tools.model import HashTableContent
from graph_tools.model.tables import SparseTable
from graph_tools.tables.evaluate import find_rows
from graph_tools.tensors import CHUNK_BYTES, Array, TensorSource, byte_size, rows_per_chunk

# Bytes of memory that TensorFlow's hash table needs for each byte of its keys.
_HASHED_FACTOR = 8


def loaded_bytes(content: HashTableContent) -> int:
    """Return roughly how many bytes of memory a native hash table needs."""
    return _HASHED_FACTOR * byte_size(content.keys)


def take_rows(tensor: TensorSource, numbers: list[Array]) -> list[Array | None]:
    """Return the rows [..., row] for arrays of row numbers; None for an array with a number out of range."""
    count = tensor.shape[0]
    good = [bool(((number >= 0) & (number < count)).all()) for number in numbers]
    flat = [number.ravel().astype(np.int64) for number, is_good in zip(numbers, good, strict=True) if is_good]
    wanted = np.unique(np.concatenate(flat)) if flat else np.empty(0, np.int64)
    rows = np.empty((len(wanted), *tensor.shape[1:]), tensor.dtype)
    position = filled = 0
    for chunk in tensor.chunks(rows_per_chunk(tensor)):
        if filled == len(wanted):
            break
        end = int(np.searchsorted(wanted, position + len(chunk)))
        rows[filled:end] = chunk[wanted[filled:end] - position]
        position, filled = position + len(chunk), end
    return [
        rows[np.searchsorted(wanted, number.astype(np.int64))] if is_good else None
        for number, is_good in zip(numbers, good, strict=True)
    ]


class Wanted:
    """The keys to look for, and the values found for them."""

    def __init__(self, keys: list[Array], row: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        flat = [key.ravel() for key in keys]
        self.keys = np.unique(np.concatenate(flat)) if flat else np.empty(0, np.int64)
        self.rows = np.zeros((len(self.keys), *row), dtype)
        self.found = np.zeros(len(self.keys), bool)

    def places(self, keys: Array) -> tuple[Array, Array]:
        """Return which of `keys` [n] are wanted, as indices into them and into `self.keys`."""
        if not len(self.keys) or not len(keys):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        hit = np.flatnonzero(self.keys[place] == keys)
        return hit, place[hit]

    def offer(self, keys: Array, rows: Array) -> None:
        """Store the rows of those keys that are wanted; if a key occurs twice, the last row counts."""
        hit, place = self.places(keys)
        self.rows[place] = rows[hit]
        self.found[place] = True

    def of(self, keys: Array) -> tuple[Array, Array]:
        """Return the rows [..., row] of keys, and which of the keys were found."""
        place = np.searchsorted(self.keys, keys)
        return self.rows[place], self.found[place]


def aligned_chunks(
    keys: TensorSource, rows: TensorSource, what: str, limit: int = CHUNK_BYTES
) -> Iterator[tuple[Array, Array]]:
    """Yield blocks of keys [n] with their rows [n, ...], of at most `limit` bytes of rows.

    Raises
    ------
    UnreadableError
        The numbers of keys and rows differ.
    """
    if keys.shape[0] != rows.shape[0]:
        raise UnreadableError(f"table '{what}': {keys.shape[0]} keys and {rows.shape[0]} rows, expected equally many")
    size = min(rows_per_chunk(rows, limit), rows_per_chunk(keys, limit))
    left = keys.chunks(size)
    block = np.empty((0, *keys.shape[1:]), keys.dtype)
    for chunk in rows.chunks(size):
        while len(block) < len(chunk):
            more = next(left)
            block = np.concatenate([block, more]) if len(block) else more
        yield block[: len(chunk)], chunk
        block = block[len(chunk) :]


def find_in_table(
    table: SparseTable, keys: list[Array], defaults: list[Array | None], seen: list[Array] | None = None
) -> list[Array]:
    """Look up keys as the training system would when it serves.

    Parameters
    ----------
    table : SparseTable
    keys : list of ndarray [...]
    defaults : list of ndarray [dim] or [..., dim], or None
        Rows of absent keys, instead of the table's own absent value.
    seen : list, optional
        List to which the different keys [n] that were found are appended.

    Returns
    -------
    list of ndarray [..., dim]
    """
    flat = [key.ravel() for key in keys]
    wanted = np.concatenate(flat) if flat else np.empty(0, table.key_dtype)
    rows, found = find_rows(table, wanted)
    if seen is not None:
        seen.append(np.unique(wanted[found]))
    answers, position = [], 0
    for wanted_keys, default in zip(keys, defaults, strict=True):
        mine = slice(position, position + wanted_keys.size)
        absent = ~found[mine]
        if absent.any():
            if default is None:
                filler = table.absent.lookup(wanted_keys.ravel()[absent], table.dim, table.dtype)
            else:
                filler = np.broadcast_to(default, (*wanted_keys.shape, table.dim)).reshape(-1, table.dim)[absent]
            rows[mine][absent] = filler
        answers.append(rows[mine].reshape(*wanted_keys.shape, table.dim))
        position += wanted_keys.size
    return answers


def find_in_hash_table(content: HashTableContent, keys: list[Array], defaults: list[Array | None]) -> list[Array]:
    """Look up keys in a native hash table; absent keys have the default."""
    values = content.values
    row = tuple(values.shape[1:]) if values is not None else ()
    dtype = values.dtype if values is not None else np.dtype(np.int64)
    wanted = Wanted(keys, row, dtype)
    if values is not None:
        for block, rows in aligned_chunks(content.keys, values, "hash table"):
            wanted.offer(block, rows)
    else:
        position = 0
        for block in content.keys.chunks(rows_per_chunk(content.keys)):
            wanted.offer(block.ravel(), np.arange(position, position + block.size))
            position += block.size
    answers = []
    for wanted_keys, default in zip(keys, defaults, strict=True):
        rows, found = wanted.of(wanted_keys.ravel())
        if not found.all():
            assert default is not None
            filler = np.broadcast_to(default, rows.shape)
            rows = rows.astype(default.dtype)
            rows[~found] = filler[~found]
        answers.append((rows if default is None else rows.astype(default.dtype)).reshape(*wanted_keys.shape, *row))
    return answers
