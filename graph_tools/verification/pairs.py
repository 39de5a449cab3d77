# SPDX-License-Identifier: Apache-2.0
"""Find the tables of a converted model in the written result, whatever their layout and row type.

Each stored table is shown as a `SparseTable` that streams the keys and rows that its lookups return. If possible, they
are in the order of the source's keys, so that one pass reads both tables side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from graph_tools.errors import UnreadableError
from graph_tools.model import Model
from graph_tools.model.stored_table import StoredTable
from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.store.rows import Quantized, dequantize, is_quantized
from graph_tools.tables.bits import Bits
from graph_tools.tables.blocks import aligned
from graph_tools.tables.stored import INDEX, NOTHING, TABLE, number_range
from graph_tools.tensors import Array, BaseTensor, StreamTensor, TensorSource, rows_between, rows_per_chunk
from graph_tools.verification.compare import different_rows
from graph_tools.verification.tables import Pair

# Gaps of up to this number of rows between two wanted rows are read as well: that is cheaper than a second read.
_GAP_ROWS = 16
# Entries of an index that are processed at once.
_INDEX_ROWS = 1 << 20
_BLOCK_BYTES = 4 << 20
_INT64 = np.dtype(np.int64)


def table_pairs(converted: Model, result: Model) -> Iterator[Pair]:
    """Yield each table as it was, together with the table in the result.

    Parameters
    ----------
    converted : Model
        Model after the passes, as it was written.
    result : Model
        Model that was read from the written files.

    Raises
    ------
    UnreadableError
        The result contains only a part of a table, or tensors that do not fit each other.
    """
    for stored in converted.stored_tables:
        # If no output needed the lookups of the table after all, the result does not contain it.
        if any(handle in result.graph for handle in stored.names.values()):
            yield Pair(stored.source, _Result(stored, result).table(), stored.reach)


class _Result:
    """A table of the result."""

    def __init__(self, stored: StoredTable, model: Model) -> None:
        self.stored, self.model, self.source = stored, model, stored.source
        self.rows = self._rows()
        if self.rows.shape[0] < stored.stored + stored.absent:
            total = stored.stored + stored.absent
            raise UnreadableError(
                f"{model.path}: table '{self.source.name}' of {self.rows.shape[0]} rows, expected {total}"
            )

    def table(self) -> SparseTable:
        source, stored = self.source, self.stored
        absent = NOTHING
        if stored.absent:
            rows = self.rows.between(stored.stored, stored.stored + stored.absent)
            absent = Absent(rows if rows.any() else None, "the stored table")
        shown = SparseTable(source.name, source.family, source.key_dtype, source.dim, source.dtype, [], absent)
        if stored.layout == "direct":
            shown.parts = [self._direct_part(absent)]
        elif stored.layout == "remap":
            shown.parts = self._indexed_parts()
        elif stored.layout == "hashed":
            shown.parts = self._hashed_parts()
        return shown

    # Rows

    def _variable(self, part: str) -> TensorSource:
        name = self.stored.names[part]
        if name not in self.model.variables:
            raise UnreadableError(f"{self.model.path}: no variable '{name}', expected one of '{self.source.name}'")
        return self.model.variables[name]

    def _rows(self) -> _Rows:
        dim, dtype, kind = self.source.dim, self.source.dtype, self.stored.row_type
        if not is_quantized(kind):
            return _Rows([self._variable("rows")], dim, dtype, lambda rows: rows)
        held = [self._variable("codes"), self._variable("scale_bias")]
        return _Rows(held, dim, dtype, lambda codes, pairs: dequantize(Quantized(codes, pairs), kind, dim))

    def _first_rows(self, count: int) -> TensorSource:
        """Return the first `count` rows, as a stream."""

        def make(rows: int) -> Iterator[Array]:
            left = count
            for block in self.rows.chunks(rows) if count else ():
                yield block[:left]
                left -= len(block[:left])
                if not left:
                    return

        return StreamTensor(self.source.dtype, (count, self.source.dim), make)

    def _rows_at(self, numbers: TensorSource) -> TensorSource:
        """Return the rows with these numbers [n], as a stream."""

        def make(rows: int) -> Iterator[Array]:
            for block in numbers.chunks(rows):
                yield self._take(block)

        return StreamTensor(self.source.dtype, (numbers.shape[0], self.source.dim), make)

    def _take(self, numbers: Array) -> Array:
        if not len(numbers):
            return np.empty((0, self.source.dim), self.source.dtype)
        total = self.rows.shape[0]
        if numbers.min() < 0 or numbers.max() >= total:
            raise UnreadableError(
                f"{self.model.path}: table '{self.source.name}': row numbers from {numbers.min()} to {numbers.max()}, "
                f"expected 0 to {total - 1}"
            )
        wanted, back = np.unique(numbers, return_inverse=True)
        starts = np.flatnonzero(np.diff(wanted, prepend=wanted[0] - _GAP_ROWS - 1) > _GAP_ROWS)
        found = np.empty((len(wanted), self.source.dim), self.source.dtype)
        for begin, end in zip(starts.tolist(), [*starts[1:].tolist(), len(wanted)], strict=True):
            run = wanted[begin:end]
            found[begin:end] = self.rows.between(int(run[0]), int(run[-1]) + 1)[run - run[0]]
        taken: Array = found[back.reshape(-1)]
        return taken

    # Keys

    def _direct_part(self, absent: Absent) -> Part:
        stored, count = self.stored, self.stored.stored
        if stored.plain or not stored.has_gaps:
            return Part(number_range(stored.low, stored.low + count), self._first_rows(count))
        # Gaps contain the rows of absent keys. Without them, these keys are absent, and the order is that of the
        # source.
        held, begin = Bits(count), 0
        rows = self._first_rows(count)
        for block in rows.chunks(rows_per_chunk(rows, _BLOCK_BYTES)):
            keys = np.arange(begin, begin + len(block), dtype=np.int64) + stored.low
            held.set(begin, different_rows(block, absent.lookup(keys, self.source.dim, self.source.dtype)))
            begin += len(block)

        def keys_held(most: int) -> Iterator[Array]:
            for first in range(0, count, most):
                yield np.flatnonzero(held.get(first, min(count, first + most))) + np.int64(stored.low + first)

        def rows_held(most: int) -> Iterator[Array]:
            first = 0
            for block in rows.chunks(most):
                yield block[held.get(first, first + len(block))]
                first += len(block)

        shape = (held.count, self.source.dim)
        return Part(StreamTensor(_INT64, shape[:1], keys_held), StreamTensor(self.source.dtype, shape, rows_held))

    def _indexed_parts(self) -> list[Part]:
        """Show rows in their order, which is that of the source, if each has one key; else in the order of keys."""
        stored, variable = self.stored, self._variable(INDEX)
        if stored.plain:
            return [Part(number_range(0, variable.shape[0]), self._rows_at(variable))]
        # The index of a sparse table needs only a share of the memory. Its last entry is for keys beyond the others.
        index = variable.read()[:-1]
        own = stored.stored - stored.has_zero_row
        by_row = _keys_by_row(index, own) if stored.share != "equal" else None
        if by_row is None:
            return [self._by_key(index, lambda numbers: numbers != stored.missing)]
        shared = self._by_key(index, lambda numbers: (numbers != stored.missing) & ~((numbers >= 0) & (numbers < own)))
        return [Part(self._keys_at(by_row), self._first_rows(own)), shared]

    def _by_key(self, index: Array, wanted: Callable[[Array], Array]) -> Part:
        """Show the keys whose row numbers are wanted, in the order of keys."""
        places = np.concatenate(
            [np.empty(0, np.int32)]
            + [(np.flatnonzero(wanted(block)) + begin).astype(np.int32) for begin, block in _split(index)]
        )

        def numbers(most: int) -> Iterator[Array]:
            for _, piece in _split(places, most):
                yield index[piece]

        return Part(self._keys_at(places), self._rows_at(StreamTensor(index.dtype, places.shape, numbers)))

    def _keys_at(self, places: Array) -> TensorSource:
        def make(most: int) -> Iterator[Array]:
            for _, piece in _split(places, most):
                yield piece.astype(np.int64) + self.stored.low

        return StreamTensor(_INT64, places.shape, make)

    def _hashed_parts(self) -> list[Part]:
        stored, name = self.stored, self.stored.names[TABLE]
        content = self.model.hash_tables.get(name)
        if content is None:
            raise UnreadableError(f"{self.model.path}: no keys of '{name}', expected those of '{self.source.name}'")
        keys, values = content.keys, content.values
        if values is not None:
            return [Part(keys, self._rows_at(values))]
        count = keys.shape[0]
        if not stored.has_zero_row:
            return [Part(keys, self._first_rows(count))]
        # Keys with a row of zeros are last and share one row: they form a separate part, in the order of the source.
        own = min(stored.stored - 1, count)

        def zeros(most: int) -> Iterator[Array]:
            for begin in range(own, count, most):
                yield np.full(min(most, count - begin), stored.stored - 1)

        last = self._rows_at(StreamTensor(_INT64, (count - own,), zeros))
        return [Part(_keys_between(keys, 0, own), self._first_rows(own)), Part(_keys_between(keys, own, count), last)]


class _Rows(BaseTensor):
    """Rows [n, dim] as lookups return them, from one tensor or from codes with their scales and biases."""

    def __init__(self, held: list[TensorSource], dim: int, dtype: np.dtype[Any], make: Callable[..., Array]) -> None:
        self._held, self._make = held, make
        self.dtype, self.shape = dtype, (held[0].shape[0], dim)

    def chunks(self, rows: int) -> Iterator[Array]:
        for found in aligned(self._held, rows):
            yield self._to_rows(found)

    def between(self, begin: int, end: int) -> Array:
        return self._to_rows([rows_between(tensor, begin, end) for tensor in self._held])

    def _to_rows(self, found: Sequence[Array]) -> Array:
        made = self._make(*found)
        if made.shape[1:] != self.shape[1:]:
            raise UnreadableError(f"stored rows of {list(made.shape[1:])}, expected {list(self.shape[1:])}")
        return made.astype(self.dtype, copy=False)


def _keys_by_row(index: Array, own: int) -> Array | None:
    """Return the position in an index of each of the first rows [own] int32; None unless each has exactly one."""
    places, count = np.full(own, -1, np.int32), 0
    for begin, block in _split(index):
        here = np.flatnonzero((block >= 0) & (block < own))
        places[block[here]] = here + begin
        count += len(here)
    return places if count == own and (places >= 0).all() else None


def _split(array: Array, most: int = _INDEX_ROWS) -> Iterator[tuple[int, Array]]:
    for begin in range(0, len(array), most):
        yield begin, array[begin : begin + most]


def _keys_between(keys: TensorSource, begin: int, end: int) -> TensorSource:
    """Return the keys from `begin` to `end`, as a stream; earlier keys are read and dropped."""

    def make(most: int) -> Iterator[Array]:
        position = 0
        for block in keys.chunks(most):
            kept = block[max(0, begin - position) : max(0, end - position)]
            if len(kept):
                yield kept
            position += len(block)

    return StreamTensor(keys.dtype, (end - begin,), make)
