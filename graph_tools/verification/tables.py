# SPDX-License-Identifier: Apache-2.0
"""Compare tables row by row while they stream: what proves a conversion whose tables are too large to serve here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from graph_tools.model import Model
from graph_tools.tables.table import Part, SparseTable
from graph_tools.tensors import Array, TensorSource, byte_size
from graph_tools.verification.compare import Tolerance, different_bits
from graph_tools.verification.fetch import Wanted, aligned_chunks
from graph_tools.verification.report import TableComparison

Pair = tuple[SparseTable, SparseTable]


def compare_tables(
    pairs: Iterable[Pair], tolerance: Tolerance | None = None, memory: int = 1 << 30
) -> list[TableComparison]:
    """Check that for every key of the first table of a pair, the second gives the same row.

    Parameters
    ----------
    pairs : iterable of (SparseTable, SparseTable)
        Source and result; of a result, `rows` are as a lookup gives them, dequantised where they are stored smaller.
    tolerance : Tolerance, optional
    memory : int [bytes]
        For rows that are held at once, where the tables are not in the same order.

    Notes
    -----
    A key that the result does not hold is given its absent value there, which must be the source's row. Keys that the
    source does not hold are looked at as well where the result has them. For keys that both lack, the absent values of
    the two tables are compared.
    """
    tolerance = tolerance or Tolerance()
    found = []
    for a, b in pairs:
        result = _in_order(a, b, tolerance)
        if result is None:
            result = _by_passes(a, b, tolerance, memory)
        _compare_absent(a, b, tolerance, result)
        found.append(result)
    return found


def compare_rows(name: str, a: TensorSource, b: TensorSource, tolerance: Tolerance | None = None) -> TableComparison:
    """Check that two tensors [n, ...] have the same rows."""
    result = TableComparison(name, rows=a.shape[0], stored=b.shape[0])
    if a.shape != b.shape:
        result.beyond, result.worst = max(a.shape[0], b.shape[0]), f"shape {list(a.shape)} / {list(b.shape)}"
        return result
    position = 0
    for first, second in aligned_chunks(a, b, name):
        numbers = np.arange(position, position + len(first))
        _compare_block(numbers, first, second, tolerance or Tolerance(), result)
        position += len(first)
    return result


def pair_by_name(a: Model, b: Model, large: int) -> tuple[list[Pair], list[tuple[str, TensorSource, TensorSource]]]:
    """Find the tables and variables that both models have under one name.

    Returns
    -------
    list of Pair
        Sparse tables and native hash tables.
    list of (name, TensorSource, TensorSource)
        Variables of at least `large` bytes, of one shape.
    """
    pairs = [(table, b.sparse_tables[name]) for name, table in a.sparse_tables.items() if name in b.sparse_tables]
    variables = [
        (name, tensor, b.variables[name])
        for name, tensor in a.variables.items()
        if byte_size(tensor) >= large and name in b.variables and b.variables[name].shape == tensor.shape
    ]
    return pairs, variables


def _blocks(table: SparseTable) -> Iterator[tuple[Array, Array]]:
    """Yield keys [n] and the rows [n, dim] that a lookup gives for them: ignored keys have the absent value."""
    for part in table.parts:
        for keys, rows in aligned_chunks(part.keys, part.rows, table.name):
            yield keys, _with_ignored(table, part, keys, rows.astype(table.dtype, copy=False))


def _with_ignored(table: SparseTable, part: Part, keys: Array, rows: Array) -> Array:
    if part.ignored is None or not len(part.ignored):
        return rows
    ignored = np.isin(keys, part.ignored)
    if ignored.any():
        rows = rows.copy()
        rows[ignored] = table.absent.lookup(keys[ignored], table.dim, table.dtype)
    return rows


def _in_order(a: SparseTable, b: SparseTable, tolerance: Tolerance) -> TableComparison | None:
    """Compare in one pass where the result holds some of the source's keys in the source's order; else None."""
    result = TableComparison(a.name)
    coming = _blocks(b)
    keys, rows = np.empty(0, b.key_dtype), np.empty((0, b.dim), b.dtype)
    for first, expected in _blocks(a):
        while len(keys) < len(first):
            block = next(coming, None)
            if block is None:
                break
            keys, rows = np.concatenate([keys, block[0]]), np.concatenate([rows, block[1]])
        held = np.isin(first, keys[: len(first)])
        count = int(held.sum())
        if not np.array_equal(first[held], keys[:count]):
            return None
        given = b.absent.lookup(first, b.dim, b.dtype)
        given[held] = rows[:count]
        keys, rows = keys[count:], rows[count:]
        result.rows += len(first)
        result.stored += count
        result.absent += len(first) - count
        _compare_block(first, expected, given, tolerance, result)
    # What is left was in another order, or is not of the source: both need a look at all keys.
    return result if not len(keys) and next(coming, None) is None else None


def _by_passes(a: SparseTable, b: SparseTable, tolerance: Tolerance, memory: int) -> TableComparison:
    """Compare in any order: a share of the keys at a time, as many as the memory holds."""
    result = TableComparison(a.name)
    share = a.count * (a.dim * a.dtype.itemsize + (64 if a.key_dtype.kind == "O" else 24))
    passes = max(1, -(-share // max(1, memory)))
    for number in range(passes):
        chosen = [(keys[mine], rows[mine]) for keys, rows in _blocks(a) for mine in [_share(keys, number, passes)]]
        keys = np.concatenate([one for one, _ in chosen]) if chosen else np.empty(0, a.key_dtype)
        expected = np.concatenate([one for _, one in chosen]) if chosen else np.empty((0, a.dim), a.dtype)
        wanted = Wanted([keys], (b.dim,), b.dtype)
        for block, rows in _blocks(b):
            mine = _share(block, number, passes)
            hit, _ = wanted.places(block[mine])
            strange = np.ones(int(mine.sum()), bool)
            strange[hit] = False
            wanted.offer(block[mine], rows[mine])
            if strange.any():
                others = block[mine][strange]
                result.extra += len(others)
                _compare_block(others, a.absent.lookup(others, a.dim, a.dtype), rows[mine][strange], tolerance, result)
        given, found = wanted.of(keys)
        given[~found] = b.absent.lookup(keys[~found], b.dim, b.dtype)
        result.rows += len(keys)
        result.stored += int(found.sum())
        result.absent += int((~found).sum())
        _compare_block(keys, expected, given, tolerance, result)
    return result


def _share(keys: Array, number: int, passes: int) -> Array:
    """Say which keys are of pass `number`."""
    if passes == 1:
        return np.ones(len(keys), bool)
    if keys.dtype.kind == "O":
        import zlib

        hashed = np.fromiter((zlib.crc32(one) for one in keys), np.int64, len(keys))
    else:
        # Fibonacci hashing: neighbouring keys are spread over the passes.
        hashed = ((keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)).astype(np.int64)
    mine: Array = hashed % passes == number
    return mine


def _compare_absent(a: SparseTable, b: SparseTable, tolerance: Tolerance, result: TableComparison) -> None:
    """Compare what the tables give for keys that neither holds: each residue of a modulus once."""
    count = max(1 if one.absent.rows is None else len(one.absent.rows) for one in (a, b))
    if a.key_dtype.kind == "O":
        probes = np.empty(1, object)
        probes[0] = b""
    else:
        probes = np.arange(count).astype(a.key_dtype)
    first = a.absent.lookup(probes, a.dim, a.dtype)
    _compare_block(probes, first, b.absent.lookup(probes, b.dim, b.dtype), tolerance, result, "absent key ")


def _compare_block(
    keys: Array, a: Array, b: Array, tolerance: Tolerance, result: TableComparison, word: str = "key "
) -> None:
    if a.shape != b.shape:
        result.beyond += len(keys)
        result.worst = f"rows of {list(a.shape[1:])} and {list(b.shape[1:])}"
        return
    if not len(keys):
        return
    if a.dtype == b.dtype and not different_bits(a, b):
        return
    if a.dtype.kind not in "fV" or b.dtype.kind not in "fV":
        wrong = (a != b).reshape(len(keys), -1).any(axis=1)
        result.different += int(wrong.sum())
        result.beyond += int(wrong.sum())
        if wrong.any() and result.worst is None:
            result.worst = word + _key_text(keys[np.flatnonzero(wrong)[0]])
        return
    x, y = a.astype(np.float64).reshape(len(keys), -1), b.astype(np.float64).reshape(len(keys), -1)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(same, 0.0, np.abs(x - y))
        wrong = ~same & ~(apart <= tolerance.absolute + tolerance.relative * np.abs(y))
    apart = np.where(np.isnan(apart), np.inf, apart).max(axis=1)
    result.different += int((~same).any(axis=1).sum())
    result.beyond += int(wrong.any(axis=1).sum())
    if apart.max() > result.max_abs_difference:
        result.max_abs_difference = float(apart.max())
        result.worst = word + _key_text(keys[int(apart.argmax())])


def _key_text(key: Any) -> str:
    return repr(key.decode("utf-8", "backslashreplace")) if isinstance(key, bytes) else str(key)


def largest_share(limit: int) -> int:
    """Bytes from which on a tensor is read as a stream, under a memory limit."""
    return max(1, limit // 16)


__all__ = ["Pair", "compare_rows", "compare_tables", "largest_share", "pair_by_name"]
