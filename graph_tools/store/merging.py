# SPDX-License-Identifier: Apache-2.0
"""Merge the changes of consecutive epochs: the last state of every key, default row, variable and stream remains."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graph_tools.errors import ConversionError, UsageError, naming
from graph_tools.store.delta import Delta, TableDelta
from graph_tools.store.timeline import Position, TimelineReader
from graph_tools.tensors import Array, ArrayTensor, StreamTensor, TensorSource, rows_between

_CHUNK_KEYS = 1 << 16


def merge_deltas(deltas: Sequence[Delta]) -> Delta:
    """Return the changes of several deltas, in the order of their epochs, as one.

    Rows are read when the result is; about 16 bytes of each key are held.

    Raises
    ------
    ConversionError
        A table or variable has another shape or another kind of keys in a later delta.
    """
    variables: dict[str, TensorSource] = {}
    tables: dict[str, list[TableDelta]] = {}
    streams: dict[str, int] = {}
    for delta in deltas:
        for name, tensor in delta.variables.items():
            before = variables.get(name)
            if before is not None and before.shape != tensor.shape:
                raise ConversionError(f"variable '{name}': {list(tensor.shape)}, expected {list(before.shape)}")
            # All values of a variable replace those of its rows.
            variables[name] = tensor
            tables.pop(name, None)
        for table in delta.tables:
            known = tables.setdefault(table.name, [])
            if known and (known[0].key_kind, known[0].dim) != (table.key_kind, table.dim):
                expected = f"{known[0].key_kind} and dim {known[0].dim}"
                raise ConversionError(
                    f"table '{table.name}': keys of kind {table.key_kind} and dim {table.dim}, expected {expected}"
                )
            known.append(table)
        streams |= delta.streams
    merged = {name: merge_tables(parts) for name, parts in tables.items()}
    for name in sorted(variables.keys() & merged.keys()):
        variables[name] = with_rows(name, variables[name], merged.pop(name))
    return Delta(tuple(merged.values()), variables, streams)


@dataclass(frozen=True)
class TimelineEnd:
    """All changes of a timeline up to a position."""

    position: Position
    delta: Delta


def read_to_end(folder: Path, start: Position, last_epoch: int | None = None) -> TimelineEnd:
    """Read a timeline from a position up to an epoch, or to its end.

    Raises
    ------
    UnreadableError
        A segment is damaged or does not continue the timeline.
    UsageError
        No segment ends with `last_epoch`.
    ConversionError
        The segments contradict each other.
    """
    reader = TimelineReader(folder, start)
    deltas = []
    while last_epoch is None or reader.position.epoch < last_epoch:
        segment = reader.next()
        if segment is None:
            break
        deltas.append(segment.delta)
    if last_epoch is not None and reader.position.epoch != last_epoch:
        found = f"epoch {reader.position.epoch} of {folder}"
        raise UsageError(f"--to {last_epoch}: {found}, expected a segment that ends with this epoch")
    with naming(folder):
        return TimelineEnd(reader.position, merge_deltas(deltas))


@dataclass(frozen=True)
class _Found:
    """Where the last state of each key is, in ascending order of keys.

    Attributes
    ----------
    table : ndarray [n] int32
        The number of the delta.
    place : ndarray [n] int64
        The place of the key there; the places of deleted keys follow those of changed ones.
    """

    table: Array
    place: Array


def merge_tables(tables: Sequence[TableDelta]) -> TableDelta:
    """Return the changes of one table in consecutive epochs as one."""
    first = tables[0]
    if len(tables) == 1:
        return first
    found = _last_strings(tables) if first.key_kind == "string" else _last_numbers(tables)
    is_deleted = found.place >= np.array([table.changed.shape[0] for table in tables])[found.table]
    changed = _Found(found.table[~is_deleted], found.place[~is_deleted])
    deleted = _Found(found.table[is_deleted], found.place[is_deleted])
    places = np.array([table.changed.shape[0] for table in tables])[deleted.table]
    deleted = _Found(deleted.table, deleted.place - places)
    numbers, default_rows = _last_default_rows(tables)
    return TableDelta(
        name=first.name,
        key_kind=first.key_kind,
        dim=first.dim,
        changed=_gathered([table.changed for table in tables], changed),
        rows=_gathered([table.rows for table in tables], changed),
        deleted=_gathered([table.deleted for table in tables], deleted),
        default_numbers=numbers,
        default_rows=default_rows,
    )


def _last_numbers(tables: Sequence[TableDelta]) -> _Found:
    keys = np.concatenate([part.read() for table in tables for part in (table.changed, table.deleted)])
    counts = [table.changed.shape[0] + table.deleted.shape[0] for table in tables]
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    last = np.ones(len(keys), bool)
    last[:-1] = ordered[1:] != ordered[:-1]
    chosen = order[last]
    ends = np.cumsum(counts)
    number = np.searchsorted(ends, chosen, side="right").astype(np.int32)
    return _Found(number, chosen - (ends - counts)[number])


def _last_strings(tables: Sequence[TableDelta]) -> _Found:
    def listed(number: int, keys: TensorSource, begin: int) -> Iterator[tuple[bytes, int, int]]:
        place = begin
        for block in keys.chunks(_CHUNK_KEYS):
            for key in block.tolist():
                yield key, number, place
                place += 1

    streams = [
        listed(number, keys, begin)
        for number, table in enumerate(tables)
        for keys, begin in ((table.changed, 0), (table.deleted, table.changed.shape[0]))
    ]
    numbers: list[int] = []
    places: list[int] = []
    before: bytes | None = None
    for key, number, place in heapq.merge(*streams):
        if key == before:
            numbers[-1], places[-1] = number, place
        else:
            numbers.append(number)
            places.append(place)
        before = key
    return _Found(np.array(numbers, np.int32), np.array(places, np.int64))


def _last_default_rows(tables: Sequence[TableDelta]) -> tuple[Array, Array]:
    rows: dict[int, Array] = {}
    for table in tables:
        if table.default_rows is not None:
            rows |= dict(zip(table.default_numbers.tolist(), table.default_rows, strict=True))
    numbers = sorted(rows)
    found = np.array([rows[number] for number in numbers], np.float32).reshape(len(numbers), tables[0].dim)
    return np.array(numbers, np.uint32), found


def _gathered(sources: Sequence[TensorSource], found: _Found) -> TensorSource:
    """Return the elements of several tensors at these places; places of one tensor ascend."""
    first = sources[0]
    if not len(found.place):
        return ArrayTensor(np.empty((0, *first.shape[1:]), first.dtype))

    def make(rows: int) -> Iterator[Array]:
        for begin in range(0, len(found.place), rows):
            numbers, places = found.table[begin : begin + rows], found.place[begin : begin + rows]
            block = np.empty((len(places), *first.shape[1:]), first.dtype)
            for number in np.unique(numbers).tolist():
                mine = numbers == number
                low, high = int(places[mine][0]), int(places[mine][-1]) + 1
                block[mine] = rows_between(sources[number], low, high)[places[mine] - low]
            yield block

    return StreamTensor(first.dtype, (len(found.place), *first.shape[1:]), make)


def with_rows(name: str, variable: TensorSource, rows: TableDelta) -> TensorSource:
    """Return a variable [n, …] in which rows with these numbers have other values.

    Raises
    ------
    ConversionError
        The variable does not have these rows.
    """
    count, dim = (variable.shape[0], math.prod(variable.shape[1:])) if variable.shape else (0, 0)
    numbers = rows.changed.read()
    if rows.key_kind != "row_number" or rows.dim != dim or (len(numbers) and int(numbers[-1]) >= count):
        last = numbers[-1] if rows.key_kind == "row_number" and len(numbers) else "none"
        found = f"rows of dim {rows.dim} by {rows.key_kind}, the last of them {last}"
        raise ConversionError(f"'{name}': {found}, expected rows of a variable {list(variable.shape)}")

    def make(size: int) -> Iterator[Array]:
        begin = 0
        for block in variable.chunks(size):
            low, high = np.searchsorted(numbers, (begin, begin + len(block)))
            if low < high:
                block = block.copy()
                flat = block.reshape(len(block), dim)
                flat[numbers[low:high] - begin] = rows_between(rows.rows, int(low), int(high)).astype(block.dtype)
            begin += len(block)
            yield block

    return StreamTensor(variable.dtype, variable.shape, make)
