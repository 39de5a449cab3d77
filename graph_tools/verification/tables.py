# SPDX-License-Identifier: Apache-2.0
"""Compare tables row by row as streams: this proves a conversion whose tables are too large to serve here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from graph_tools.model import Model
from graph_tools.model.stored_table import EVERYTHING, Reach
from graph_tools.model.tables import Part, SparseTable
from graph_tools.tensors import Array, TensorSource, byte_size
from graph_tools.verification.compare import Tolerance, different_bits
from graph_tools.verification.fetch import aligned_chunks, loaded_bytes
from graph_tools.verification.report import TableComparison

# Small, so that the arrays made for comparing a block stay small.
_BLOCK_BYTES = 8 << 20


class Pair(NamedTuple):
    """One table in two models.

    Attributes
    ----------
    source, result : SparseTable
        The `rows` of the result are those that a lookup returns, dequantized if they are stored in fewer bits.
    reach : Reach
        Keys that requests can contain; the rows of other keys may be missing.
    """

    source: SparseTable
    result: SparseTable
    reach: Reach = EVERYTHING


def compare_tables(
    pairs: Iterable[Pair], tolerance: Tolerance | None = None, memory: int = 1 << 30
) -> list[TableComparison]:
    """Check for every key of a pair's first table that the second table has the same row.

    Parameters
    ----------
    pairs : iterable of Pair
    tolerance : Tolerance, optional
    memory : int [bytes]
        Memory for rows, if the tables are not in the same order.

    Notes
    -----
    A key that the result does not contain has the result's absent value, which must equal the source's row. Keys that
    only the result contains are compared as well. For keys that both lack, the absent values of the two tables are
    compared.
    """
    tolerance = tolerance or Tolerance()
    found = []
    for pair in pairs:
        result = _in_order(pair, tolerance)
        if result is None:
            result = _by_passes(pair, tolerance, memory)
        _compare_absent(pair.source, pair.result, tolerance, result)
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
    """Find the tables and variables that have the same name in both models.

    Returns
    -------
    list of Pair
        Sparse tables.
    list of (name, TensorSource, TensorSource)
        Variables of at least `large` bytes and equal shape.
    """
    pairs = [Pair(table, b.sparse_tables[name]) for name, table in a.sparse_tables.items() if name in b.sparse_tables]
    variables = [
        (name, tensor, b.variables[name])
        for name, tensor in a.variables.items()
        if byte_size(tensor) >= large and name in b.variables and b.variables[name].shape == tensor.shape
    ]
    return pairs, variables


def _blocks(table: SparseTable, reach: Reach) -> Iterator[tuple[Array, Array]]:
    """Yield keys [n] and the rows [n, dim] that a lookup returns for them; ignored keys have the absent value."""
    for part in table.parts:
        yield from _part_blocks(table, part, reach)


def _part_blocks(table: SparseTable, part: Part, reach: Reach) -> Iterator[tuple[Array, Array]]:
    for keys, rows in aligned_chunks(part.keys, part.rows, table.name, _BLOCK_BYTES):
        if not reach.everything and keys.dtype != object:
            asked = reach.holds(keys)
            keys, rows = keys[asked], rows[asked]
        yield keys, _with_ignored(table, part, keys, rows.astype(table.dtype, copy=False))


def _with_ignored(table: SparseTable, part: Part, keys: Array, rows: Array) -> Array:
    if part.ignored is None or not len(part.ignored):
        return rows
    ignored = np.isin(keys, part.ignored)
    if ignored.any():
        rows = rows.copy()
        rows[ignored] = table.absent.lookup(keys[ignored], table.dim, table.dtype)
    return rows


class _Cursor:
    """Reads a part of the result and takes keys from it in their order."""

    def __init__(self, table: SparseTable, part: Part, reach: Reach) -> None:
        self._coming = _part_blocks(table, part, reach)
        self.keys, self.rows = np.empty(0, table.key_dtype), np.empty((0, table.dim), table.dtype)

    def take(self, asked: Array, given: Array) -> Array | None:
        """Write the next rows of those `asked` keys [n] that the part has into `given` [n, dim].

        Return a mask [n] bool of these keys, or None if the order differs.
        """
        self._read_ahead(len(asked))
        held = np.isin(asked, self.keys[: len(asked)])
        count = int(held.sum())
        if not np.array_equal(asked[held], self.keys[:count]):
            return None
        given[held] = self.rows[:count]
        self.keys, self.rows = self.keys[count:], self.rows[count:]
        return held

    def _read_ahead(self, count: int) -> None:
        while len(self.keys) < count:
            keys, rows = next(self._coming, (None, None))
            if keys is None or rows is None:
                return
            self.keys, self.rows = np.concatenate([self.keys, keys]), np.concatenate([self.rows, rows])

    @property
    def at_end(self) -> bool:
        self._read_ahead(1)
        return not len(self.keys)


def _in_order(pair: Pair, tolerance: Tolerance) -> TableComparison | None:
    """Compare in one pass if each part of the result has its keys in the source's order; else return None."""
    a, b, reach = pair
    result = TableComparison(a.name)
    cursors = [_Cursor(b, part, reach) for part in b.parts]
    for keys, expected in _blocks(a, reach):
        given = b.absent.lookup(keys, b.dim, b.dtype)
        held = np.zeros(len(keys), bool)
        for cursor in cursors:
            found = cursor.take(keys, given)
            if found is None or (held & found).any():
                return None
            held |= found
        result.rows += len(keys)
        result.stored += int(held.sum())
        result.absent += int((~held).sum())
        _compare_block(keys, expected, given, tolerance, result)
    # Remaining keys have another order or are not in the source; both cases need a look at all keys.
    return result if all(cursor.at_end for cursor in cursors) else None


def _by_passes(pair: Pair, tolerance: Tolerance, memory: int) -> TableComparison:
    """Compare in any order: each pass takes the share of the source's keys that fits into memory."""
    a, b, reach = pair
    result = TableComparison(a.name)
    each = a.dim * a.dtype.itemsize + (160 if a.key_dtype.kind == "O" else 40)
    passes = max(1, -(-a.count * each // max(1, memory)))
    for number in range(passes):
        keys, expected = _rows_of_pass(a, reach, number, passes)
        order = np.argsort(keys, kind="stable")
        ranked = keys[order]
        found = np.zeros(len(keys), bool)
        for block, rows in _blocks(b, reach):
            mine = np.flatnonzero(_is_in_pass(block, number, passes))
            place = np.minimum(np.searchsorted(ranked, block[mine]), max(0, len(ranked) - 1))
            hit = ranked[place] == block[mine] if len(ranked) else np.zeros(len(mine), bool)
            known = order[place[hit]]
            found[known] = True
            _compare_block(block[mine[hit]], expected[known], rows[mine[hit]], tolerance, result)
            strange = mine[~hit]
            result.extra += len(strange)
            absent = a.absent.lookup(block[strange], a.dim, a.dtype)
            _compare_block(block[strange], absent, rows[strange], tolerance, result)
        result.rows += len(keys)
        result.stored += int(found.sum())
        result.absent += int((~found).sum())
        step = max(1, _BLOCK_BYTES // each)
        for begin in range(0, len(keys), step):
            gone = begin + np.flatnonzero(~found[begin : begin + step])
            absent = b.absent.lookup(keys[gone], b.dim, b.dtype)
            _compare_block(keys[gone], expected[gone], absent, tolerance, result)
    return result


def _rows_of_pass(table: SparseTable, reach: Reach, number: int, passes: int) -> tuple[Array, Array]:
    """Return the keys [n] of a pass and their rows [n, dim]."""
    # A tenth above the mean: a hash distributes distinct keys far more evenly than that.
    most = min(table.count, int(table.count / passes * 1.1) + 1024)
    keys, rows = np.empty(most, table.key_dtype), np.empty((most, table.dim), table.dtype)
    count = 0
    for block, found in _blocks(table, reach):
        mine = _is_in_pass(block, number, passes)
        more = int(np.count_nonzero(mine))
        if count + more > len(keys):
            keys = np.concatenate([keys[:count], np.empty(more + most // 8, keys.dtype)])
            rows = np.concatenate([rows[:count], np.empty((more + most // 8, table.dim), rows.dtype)])
        keys[count : count + more], rows[count : count + more] = block[mine], found[mine]
        count += more
    return keys[:count], rows[:count]


def _is_in_pass(keys: Array, number: int, passes: int) -> Array:
    """Return a mask of the keys that belong to pass `number`."""
    if passes == 1:
        return np.ones(len(keys), bool)
    if keys.dtype.kind == "O":
        import zlib

        hashed = np.fromiter((zlib.crc32(key) for key in keys), np.int64, len(keys))
    else:
        # Fibonacci hashing distributes neighboring keys over the passes.
        hashed = ((keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)).astype(np.int64)
    mine: Array = hashed % passes == number
    return mine


def _compare_absent(a: SparseTable, b: SparseTable, tolerance: Tolerance, result: TableComparison) -> None:
    """Compare the values of keys that neither table has, once per residue of a modulus."""
    count = max(1 if table.absent.rows is None else len(table.absent.rows) for table in (a, b))
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


def largest_share(limit: int, *models: Model) -> int:
    """Return the bytes from which tensors are read as streams, so that TensorFlow loads only a part of the limit."""
    share = max(1, limit // 16)
    for model in models:
        held = 0
        for size in sorted(held_bytes(model)):
            held += size
            if held > limit // 4:
                share = min(share, max(1, size))
                break
    return share


def held_bytes(model: Model) -> list[int]:
    """Return the bytes of each variable and native hash table in memory."""
    return [byte_size(variable) for variable in model.variables.values()] + [
        loaded_bytes(table) for table in model.hash_tables.values()
    ]


__all__ = ["Pair", "compare_rows", "compare_tables", "held_bytes", "largest_share", "pair_by_name"]
