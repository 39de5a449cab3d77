# SPDX-License-Identifier: Apache-2.0
"""Check that sparse tables of any origin are valid: lengths, distinct keys, finite values, equal key sets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graph_tools.errors import UnreadableError
from graph_tools.model.tables import SparseTable
from graph_tools.tensors import CHUNK_BYTES, Array, TensorSource, rows_per_chunk

# Values of this size are not trained weights, but uninitialized memory.
LARGEST_VALUE = 1e30
DUPLICATE_MEMORY_BYTES = 1 << 30

_STRING_KEY_BYTES = 160  # approximate size of a key in a Python set


def check_table(table: SparseTable, memory_bytes: int = DUPLICATE_MEMORY_BYTES) -> None:
    """Check a table before it is used; this reads keys and rows at least once.

    Raises
    ------
    UnreadableError
        The table is empty, the numbers of keys and rows differ, a key occurs twice, or a value is not finite or too
        large.
    """
    check_shapes(table)
    check_distinct(table, memory_bytes)
    scan_values(table)


def check_distinct(table: SparseTable, memory_bytes: int = DUPLICATE_MEMORY_BYTES) -> None:
    """Raise `UnreadableError` if a key occurs more than once, in one part or in two; this reads all keys."""
    duplicate = find_duplicate([part.keys for part in table.parts], memory_bytes)
    if duplicate is not None:
        raise UnreadableError(f"table {table.name}: key {duplicate!r} more than once, expected distinct keys")


def check_shapes(table: SparseTable, may_be_empty: bool = False) -> None:
    """Check the lengths and types of all parts, and that there is at least one key; this reads no data.

    With `may_be_empty`, a table may have no keys: a part of a partitioned table that is read part by part may be empty.
    """
    for number, part in enumerate(table.parts):
        where = f"table {table.name}" + (f", part {number}" if len(table.parts) > 1 else "")
        if part.keys.shape[0] != part.rows.shape[0]:
            raise UnreadableError(
                f"{where}: {part.keys.shape[0]} keys and {part.rows.shape[0]} rows, expected equally many"
            )
        if part.rows.shape[1:] != (table.dim,) or part.rows.dtype != table.dtype:
            raise UnreadableError(
                f"{where}: rows {part.rows.dtype}{list(part.rows.shape)}, expected {table.dtype}[n, {table.dim}]"
            )
        if len(part.keys.shape) != 1 or part.keys.dtype != table.key_dtype:
            raise UnreadableError(
                f"{where}: keys {part.keys.dtype}{list(part.keys.shape)}, expected {table.key_dtype}[n]"
            )
        if part.frequencies is not None and part.frequencies.shape != part.keys.shape:
            raise UnreadableError(
                f"{where}: {part.frequencies.shape[0]} frequencies for {part.keys.shape[0]} keys, expected one each"
            )
    if not table.count and not may_be_empty:
        raise UnreadableError(f"table {table.name}: no keys, expected at least one")


def scan_values(table: SparseTable) -> None:
    """Raise `UnreadableError` for the first value that is not finite or has an absolute value of 1e30 or more."""
    for number, part in enumerate(table.parts):
        begin = 0
        for rows in part.rows.chunks(rows_per_chunk(part.rows, CHUNK_BYTES // 4)):
            bad = _first_bad(rows)
            if bad is not None:
                row, column = bad
                where = f", part {number}" if len(table.parts) > 1 else ""
                raise UnreadableError(
                    f"table {table.name}{where}: row {begin + row} (key {_key_at(part.keys, begin + row)!r}) has "
                    f"{rows[row, column]} in column {column}, expected finite values below {LARGEST_VALUE:g} in size"
                )
            begin += len(rows)


def _first_bad(rows: Array) -> tuple[int, int] | None:
    """Return row and column of the first value that cannot be a weight, or None."""
    if not rows.size:
        return None
    wide = rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float32)
    # NaN makes both of these NaN, and comparisons with NaN are false.
    if wide.max() < LARGEST_VALUE and wide.min() > -LARGEST_VALUE:
        return None
    row, column = np.argwhere(~(np.abs(wide) < LARGEST_VALUE))[0]
    return int(row), int(column)


def _key_at(keys: TensorSource, row: int) -> Any:
    begin = 0
    for chunk in keys.chunks(rows_per_chunk(keys)):
        if row < begin + len(chunk):
            return chunk[row - begin] if keys.dtype == object else int(chunk[row - begin])
        begin += len(chunk)
    return None


def find_duplicate(keys: TensorSource | Sequence[TensorSource], memory_bytes: int = DUPLICATE_MEMORY_BYTES) -> Any:
    """Return a key that occurs more than once, within one source or in two of them, or None.

    Notes
    -----
    A hash splits the keys into groups, so many that one group fits into `memory_bytes`. Each group is collected in one
    pass over all keys, sorted, and searched for equal neighbors.
    """
    sources = [keys] if not isinstance(keys, Sequence) else list(keys)
    total = sum(source.shape[0] for source in sources)
    if total < 2:
        return None
    strings = any(source.dtype == object for source in sources)
    # For each key: 8 bytes, and a tenth more since groups differ in size. A hash distributes keys far more evenly than
    # that.
    each = _STRING_KEY_BYTES if strings else 9
    groups = max(1, math.ceil(total * each / memory_bytes))
    for group in range(groups):
        found = _string_twice(sources, group, groups) if strings else _find_repeated(sources, group, groups, total)
        if found is not None:
            return found
    return None


def _find_repeated(sources: list[TensorSource], group: int, groups: int, total: int) -> int | None:
    """Return an integer key of a group that occurs twice, or None."""
    kept = np.empty(int(total / groups * 1.1) + 1024 if groups > 1 else total, sources[0].dtype)
    count = 0
    for chunk in _chunks(sources):
        mine = chunk if groups == 1 else chunk[mix(chunk) % np.uint64(groups) == group]
        if count + len(mine) > len(kept):
            # There are more keys than distinct keys can be, so a repeated key is probably here already.
            found = _equal_neighbors(kept[:count])
            if found is not None:
                return found
            kept = np.concatenate([kept[:count], np.empty(len(kept) + len(mine), kept.dtype)])
        kept[count : count + len(mine)] = mine
        count += len(mine)
    return _equal_neighbors(kept[:count])


def _equal_neighbors(keys: Array) -> int | None:
    """Sort keys in place and return one that occurs twice, or None."""
    keys.sort()
    step = 1 << 20
    for begin in range(0, len(keys) - 1, step):
        piece = keys[begin : begin + step + 1]
        same = np.flatnonzero(piece[1:] == piece[:-1])
        if len(same):
            return int(piece[same[0]])
    return None


def _string_twice(sources: list[TensorSource], group: int, groups: int) -> bytes | None:
    """Return a string key of a group that occurs twice, or None."""
    seen: set[bytes] = set()
    for chunk in _chunks(sources):
        for key in chunk.tolist():
            if groups > 1 and hash(key) % groups != group:
                continue
            if key in seen:
                return bytes(key)
            seen.add(key)
    return None


def same_key_set(a: TensorSource | Sequence[TensorSource], b: TensorSource | Sequence[TensorSource]) -> bool:
    """Return whether two sets of distinct keys are equal, in any order, in one pass over each.

    Notes
    -----
    Compares the number of keys, and the sum and the exclusive or of two 64-bit hashes of each key. Different sets are
    taken for equal with a probability of about 2^-128.
    """
    return _fingerprint(a) == _fingerprint(b)


def _fingerprint(keys: TensorSource | Sequence[TensorSource]) -> tuple[int, ...]:
    sources = [keys] if not isinstance(keys, Sequence) else list(keys)
    count = total = 0
    either = 0
    for chunk in _chunks(sources):
        hashes = mix(chunk)
        other = mix(hashes ^ np.uint64(0x9E3779B97F4A7C15))
        total = (total + int(hashes.sum(dtype=np.uint64))) & 0xFFFFFFFFFFFFFFFF
        either ^= int(np.bitwise_xor.reduce(other))
        count += len(chunk)
    return count, total, either


def mix(keys: Array) -> Array:
    """Return 64-bit hashes [n] uint64 of keys [n]: the finalizer of splitmix64, applied to Python's hash for strings.

    Notes
    -----
    Keys of 32 and 64 bits with equal values have equal hashes. Hashes of strings are valid in one process only.
    """
    if keys.dtype == object:
        hashed = np.fromiter(map(hash, keys.tolist()), np.int64, len(keys)).astype(np.uint64)
    else:
        hashed = keys.astype(np.uint64)
    hashed = (hashed ^ hashed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    hashed = (hashed ^ hashed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed: Array = hashed ^ hashed >> np.uint64(31)
    return mixed


def _chunks(sources: list[TensorSource]) -> Iterator[Array]:
    """Yield blocks of all sources, small enough that temporary arrays stay small."""
    for source in sources:
        yield from source.chunks(rows_per_chunk(source, CHUNK_BYTES // 8))
