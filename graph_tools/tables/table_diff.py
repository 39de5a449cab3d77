# SPDX-License-Identifier: Apache-2.0
"""Find the changes between two states of a table in bounded memory.

Exports have keys in any order. Both tables are read as often as needed: each time, the keys of one range and their rows
are held, sorted and compared. The results, which ascend from range to range, are kept in files.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graph_tools.errors import ConversionError
from graph_tools.model.tables import SparseTable
from graph_tools.store.delta import TableDelta, no_keys
from graph_tools.store.spill import SpillFolder
from graph_tools.tables.blocks import TableRows, aligned, of_sparse_table
from graph_tools.tensors import Array, TensorSource, rows_per_chunk

# Besides rows and keys, sorting needs two numbers for each key; rows are held twice while they are put into order.
_KEY_BYTES = 24
_STRING_BYTES = 120
_SAMPLES = 1 << 16
_COMPARED_BYTES = 4 << 20

Advance = Callable[[int], None]
"""Called with the number of rows read since the last call."""


@dataclass(frozen=True)
class _Range:
    """The keys from `low` on and below `high`; None: no limit."""

    low: Any = None
    high: Any = None

    def holds(self, keys: Array) -> Array:
        inside = np.ones(len(keys), bool)
        if self.low is not None:
            inside &= (keys >= _scalar(self.low, keys.dtype)).astype(bool)
        if self.high is not None:
            inside &= (keys < _scalar(self.high, keys.dtype)).astype(bool)
        return inside


def _scalar(key: Any, dtype: np.dtype[Any]) -> Array:
    """Return a key as an array without dimensions; NumPy's own strings would lose zeros at their end."""
    made = np.empty((), dtype)
    made[()] = key
    return made


def diff_tables(
    old: SparseTable, new: SparseTable, spill: SpillFolder, memory_limit: int, advance: Advance | None = None
) -> TableDelta:
    """Return the changes from one state of a table to another one, as lookups see them.

    Raises
    ------
    ConversionError
        The tables have other kinds of keys, dimensions or default rows, or values that fp32 does not represent.
    """
    _check_alike(old, new)
    strings = new.key_dtype.kind == "O"
    dtype = np.dtype(object) if strings else np.dtype(np.int64)
    changed, deleted = spill.keys(dtype), spill.keys(dtype)
    rows = spill.array(np.float32, (new.dim,))
    sides = of_sparse_table(old), of_sparse_table(new)
    for part in _ranges(sides, memory_limit):
        (old_keys, old_rows), (keys, now) = (_load(side, part, dtype, advance) for side in sides)
        place = np.searchsorted(old_keys, keys) if len(old_keys) else np.zeros(len(keys), np.int64)
        place = np.minimum(place, max(0, len(old_keys) - 1))
        known = (old_keys[place] == keys).astype(bool) if len(old_keys) else np.zeros(len(keys), bool)
        differs = ~known
        differs[known] = _differ(old_rows, place[known], now, np.flatnonzero(known))
        changed.add(keys[differs])
        rows.add(now[differs])
        gone = np.ones(len(old_keys), bool)
        gone[place[known]] = False
        deleted.add(old_keys[gone])
    numbers, default_rows = _diff_default_rows(old, new)
    return TableDelta(
        name=new.name,
        key_kind="string" if strings else "int64",
        dim=new.dim,
        changed=changed.finish(),
        rows=rows.finish(),
        deleted=deleted.finish(),
        default_numbers=numbers,
        default_rows=default_rows,
    )


def _check_alike(old: SparseTable, new: SparseTable) -> None:
    kinds = [f"keys {table.key_dtype}, rows {table.dtype}[{table.dim}]" for table in (old, new)]
    if kinds[0] != kinds[1]:
        raise ConversionError(f"table '{new.name}': {kinds[1]}, expected {kinds[0]} as before")
    check_float(new.dtype, f"table '{new.name}'")


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether fp32 represents all values of a type."""
    return dtype.kind in "fV" and dtype.itemsize <= 4


def check_float(dtype: np.dtype[Any], what: str) -> None:
    """Raise `ConversionError` unless fp32 represents all values of a type."""
    if not is_float(dtype):
        raise ConversionError(f"{what}: values of type {dtype} have changed, expected a type that fp32 represents")


def _ranges(sides: tuple[TableRows, TableRows], memory_limit: int) -> list[_Range]:
    """Return ranges of keys, in ascending order, each of which fits into memory."""
    key = _STRING_BYTES if sides[1].string_keys else _KEY_BYTES
    needed = sum(side.count * (key + 8 * side.dim) for side in sides)
    count = -(-needed // max(1, memory_limit))
    if count <= 1:
        return [_Range()]
    step = max(1, sum(side.count for side in sides) // _SAMPLES)
    sample = [block.keys[::step] for side in sides for block in side.blocks(rows=False) if block.keys is not None]
    ordered = np.sort(np.concatenate(sample))
    limits = ordered[np.arange(1, count) * len(ordered) // count]
    limits = limits[np.concatenate([[True], (limits[1:] != limits[:-1]).astype(bool)])].tolist()
    return [_Range(low, high) for low, high in zip([None, *limits], [*limits, None], strict=True)]


def _load(side: TableRows, part: _Range, dtype: np.dtype[Any], advance: Advance | None) -> tuple[Array, Array]:
    """Return the keys [n] of a range that lookups find, in ascending order, and their rows [n, dim] float32."""
    keys, rows = [np.empty(0, dtype)], [np.empty((0, side.dim), np.float32)]
    for block in side.blocks():
        assert block.keys is not None
        assert block.rows is not None
        mask, ignored = part.holds(block.keys), side.ignored[block.part]
        if ignored is not None:
            place = np.minimum(np.searchsorted(ignored, block.keys), len(ignored) - 1)
            mask &= (ignored[place] != block.keys).astype(bool)
        keys.append(block.keys[mask])
        rows.append(block.rows[mask].astype(np.float32))
        if advance is not None:
            advance(len(block))
    found = np.concatenate(keys)
    order = np.argsort(found, kind="stable")
    return found[order], np.concatenate(rows)[order]


def _differ(old: Array, old_places: Array, new: Array, new_places: Array) -> Array:
    """Return [n] bool: whether the bits of rows at corresponding places differ."""
    differs = np.empty(len(new_places), bool)
    step = max(1, _COMPARED_BYTES // (4 * max(1, new.shape[1])))
    for begin in range(0, len(new_places), step):
        pick = slice(begin, begin + step)
        first, second = old[old_places[pick]].view(np.uint32), new[new_places[pick]].view(np.uint32)
        differs[pick] = (first != second).any(axis=1)
    return differs


def _diff_default_rows(old: SparseTable, new: SparseTable) -> tuple[Array, Array]:
    empty = np.empty((0, new.dim), np.float32)
    before, now = (
        empty if table.absent.rows is None else np.ascontiguousarray(table.absent.rows, np.float32)
        for table in (old, new)
    )
    if before.shape != now.shape:
        # Rows of zeros mean the same as none.
        if before.any() or now.any():
            found = f"{len(now)} default rows, which are not all zeros,"
            raise ConversionError(f"table '{new.name}': {found} after {len(before)}, expected as many as before")
        return np.empty(0, np.uint32), empty
    numbers = np.flatnonzero((before.view(np.uint32) != now.view(np.uint32)).any(axis=1))
    return numbers.astype(np.uint32), now[numbers]


def diff_rows(name: str, old: TensorSource, new: TensorSource, spill: SpillFolder) -> TableDelta:
    """Return the rows of a float variable [n, ...] that have changed, by their numbers."""
    dim = math.prod(new.shape[1:])
    numbers, rows = spill.array(np.int64), spill.array(np.float32, (dim,))
    begin, step = 0, rows_per_chunk(new, _COMPARED_BYTES)
    for before, now in aligned([old, new], step):
        differs = (bits(before) != bits(now)).reshape(len(now), dim).any(axis=1)
        numbers.add(np.flatnonzero(differs) + begin)
        rows.add(now[differs].astype(np.float32))
        begin += len(now)
    return TableDelta(
        name,
        "row_number",
        dim,
        numbers.finish(),
        rows.finish(),
        deleted=no_keys("row_number"),
        default_rows=np.empty((0, dim), np.float32),
    )


def equal_content(old: TensorSource, new: TensorSource) -> bool:
    """Return whether two tensors of equal shapes and types have equal bits."""
    if not new.shape:
        return bool((bits(old.read()) == bits(new.read())).all())
    blocks = aligned([old, new], rows_per_chunk(new, _COMPARED_BYTES))
    return all(bool((bits(before) == bits(now)).all()) for before, now in blocks)


def bits(array: Array) -> Array:
    """Return the elements as unsigned integers, or strings as they are."""
    if array.dtype == object:
        return array
    flat = np.ascontiguousarray(array)
    return flat.view(np.dtype(f"u{array.dtype.itemsize}")).reshape(array.shape)
