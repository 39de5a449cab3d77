# SPDX-License-Identifier: Apache-2.0
"""Compute the tensors of a stored table from the exported ones while they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from graph_tools.model.tables import PlannedTensor
from graph_tools.store.rows import codes_width, halve, is_quantized, quantize, stored_dtype
from graph_tools.tables.blocks import Block
from graph_tools.tables.costs import stored_rows
from graph_tools.tables.plan import TablePlan
from graph_tools.tensors import Array, ArrayTensor, StreamTensor, TensorSource, split_rows

_WRITE_BYTES = 4 << 20


class TableStreams:
    """The tensors of one plan.

    Order of the rows: rows with keys, then one row of zeros if zero rows are shared, then the rows of absent keys.
    """

    def __init__(self, plan: TablePlan) -> None:
        self.plan = plan
        self.source, self.found, self.counts = plan.source, plan.analysis, plan.counts
        self.sharing = plan.layout.share
        self.has_zero_row = self.sharing != "none" and self.counts.zeros > 0
        self.stored = stored_rows(plan.layout, self.counts)
        #: Number of the row of zeros, and of the first row for absent keys.
        self.zero_row = self.stored - 1
        self.absent_row = self.stored

    # Selection of rows

    def _is_kept(self, block: Block) -> Array:
        end = block.begin + len(block)
        return self.found.own.get(block.begin, end) | self.found.zeros.get(block.begin, end)

    def _is_stored(self, block: Block) -> Array:
        end = block.begin + len(block)
        if self.plan.shared is not None:
            return self.plan.shared.first.get(block.begin, end)
        return self._is_kept(block) if self.sharing == "none" else self.found.own.get(block.begin, end)

    def _numbers(self, keys: bool) -> Iterator[tuple[Block, Array, Array]]:
        """Yield (block, kept [n] bool, row numbers [kept rows] int32) in the order of the source."""
        own_place = stored = 0
        for block in self.source.blocks(keys=keys, rows=False):
            end = block.begin + len(block)
            own, kept = self.found.own.get(block.begin, end), self._is_kept(block)
            numbers = np.full(len(block), self.zero_row, np.int32)
            if self.plan.shared is not None:
                count = int(np.count_nonzero(own))
                numbers[own] = self.plan.shared.target[own_place : own_place + count]
                own_place += count
            else:
                mine = kept if self.sharing == "none" else own
                count = int(np.count_nonzero(mine))
                numbers[mine] = np.arange(stored, stored + count, dtype=np.int32)
                stored += count
            yield block, kept, numbers[kept]

    # Keys

    def keys(self) -> TensorSource:
        """Return the keys [kept] of a hash table, in the order of its values; keys of shared zero rows are last."""
        dtype = np.dtype(object) if self.source.string_keys else np.dtype(np.int64)

        def some(pick: Callable[[Block], Array]) -> Iterator[Array]:
            for block in self.source.blocks(rows=False):
                assert block.keys is not None
                mask = pick(block)
                yield block.keys if mask.all() else block.keys[mask]

        def make(rows: int) -> Iterator[Array]:
            if self.sharing == "zero":
                yield from split_rows(some(self._is_stored), rows)
                yield from split_rows(some(lambda b: self.found.zeros.get(b.begin, b.begin + len(b))), rows)
            else:
                yield from split_rows(some(self._is_kept), rows)

        return StreamTensor(dtype, (self.counts.kept,), make)

    def values(self) -> TensorSource | None:
        """Return the row numbers [kept] int32 of the keys, or None if they are 0, 1, 2, …."""
        if self.sharing != "equal":
            return None

        def make(rows: int) -> Iterator[Array]:
            yield from split_rows((numbers for _, _, numbers in self._numbers(keys=False)), rows)

        return StreamTensor(np.dtype(np.int32), (self.counts.kept,), make)

    def index(self) -> TensorSource:
        """Return the row numbers [span] int32 of all keys from the smallest to the largest.

        A sparse table has one more entry, for keys outside this range: the absent row, or -1 if that depends on the
        key.
        """
        if self.source.plain:
            return StreamTensor(np.dtype(np.int32), (self.counts.span,), self._plain_index)
        absent = -1 if self.plan.needs_missing else self.absent_row
        index = np.full(self.counts.span + 1, absent, np.int32)
        for block, kept, numbers in self._numbers(keys=True):
            assert block.keys is not None
            index[block.keys[kept] - self.plan.low] = numbers
        return ArrayTensor(index)

    def _plain_index(self, rows: int) -> Iterator[Array]:
        left = self.counts.span
        for block, kept, numbers in self._numbers(keys=True):
            # For dead rows inside the span, any number is valid.
            index = np.zeros(len(block), np.int32)
            index[kept] = numbers
            yield from split_rows([index[:left]], rows)
            left -= len(index[:left])
            if not left:
                return

    # Rows

    def tensors(self) -> dict[str, TensorSource]:
        """Return the variables that contain the rows, by the last part of their name."""
        kind = self.plan.row_type
        total = self.stored + self.counts.absent
        dtype = stored_dtype(kind, self.source.dtype)
        if not is_quantized(kind):
            convert = (lambda rows: rows) if kind == "fp32" else (lambda rows: halve(rows, kind))
            return {"rows": self._map_rows(dtype, (total, self.source.dim), convert)}
        width = codes_width(kind, self.source.dim)
        pairs = _Pairs(total) if total * 4 <= self.plan.window_bytes else None

        def codes(rows: Array) -> Array:
            found = quantize(rows, kind)
            if pairs is not None:
                pairs.add(found.scale_bias)
            return found.codes

        def scale_bias(rows: int) -> Iterator[Array]:
            if pairs is not None and pairs.complete:
                yield from split_rows([pairs.take()], rows)
                return
            for block in split_rows(self._rows(), rows):
                yield quantize(block, kind).scale_bias

        return {
            "codes": self._map_rows(dtype, (total, width), codes, pairs.begin if pairs is not None else None),
            "scale_bias": PlannedTensor(np.dtype(np.float16), (total, 2), scale_bias),
        }

    def _map_rows(
        self,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        convert: Callable[[Array], Array],
        begin: Callable[[], None] | None = None,
    ) -> TensorSource:
        def make(rows: int) -> Iterator[Array]:
            if begin is not None:
                begin()
            for block in split_rows(self._rows(), rows):
                yield convert(block)

        return PlannedTensor(dtype, shape, make)

    def _rows(self) -> Iterator[Array]:
        if self.plan.layout.name == "direct":
            yield from self._plain_rows() if self.source.plain else self._ordered_rows()
        elif self.plan.layout.name != "none":
            for block in self.source.blocks(keys=False, limit=_WRITE_BYTES):
                assert block.rows is not None
                mask = self._is_stored(block)
                yield block.rows if mask.all() else block.rows[mask]
            if self.has_zero_row:
                yield np.zeros((1, self.source.dim), self.source.dtype)
        if self.counts.absent:
            policy = self.plan.policy
            assert policy is not None
            rows = policy.absent.rows
            yield np.zeros((1, self.source.dim), self.source.dtype) if rows is None else rows.astype(self.source.dtype)

    def _plain_rows(self) -> Iterator[Array]:
        left = self.counts.span
        for block in self.source.blocks(keys=False, limit=_WRITE_BYTES):
            assert block.rows is not None
            yield block.rows[:left]
            left -= len(block.rows[:left])
            if not left:
                return

    def _ordered_rows(self) -> Iterator[Array]:
        """Yield the rows in the order of their keys, with the rows of absent keys between them."""
        row = self.source.dim * self.source.dtype.itemsize
        if self.found.ascending:
            yield from self._ascending_rows(max(64, _WRITE_BYTES // row))
            return
        window = max(64, self.plan.window_bytes // row)
        for begin in range(0, self.counts.span, window):
            size = min(window, self.counts.span - begin)
            filled = self._absent_rows(begin, size)
            for block in self.source.blocks(limit=_WRITE_BYTES):
                assert block.keys is not None
                assert block.rows is not None
                place = block.keys - (self.plan.low + begin)
                mine = self._is_kept(block) & (place >= 0) & (place < size)
                filled[place[mine]] = block.rows[mine]
            yield filled

    def _ascending_rows(self, most: int) -> Iterator[Array]:
        place = 0
        for block in self.source.blocks(limit=_WRITE_BYTES):
            assert block.keys is not None
            assert block.rows is not None
            kept = self._is_kept(block)
            keys, rows = block.keys[kept] - self.plan.low, block.rows[kept]
            while len(keys):
                count = int(np.searchsorted(keys, place + most))
                size = int(keys[count - 1]) + 1 - place if count else most
                filled = rows[:count] if count == size else self._absent_rows(place, size)
                if count != size:
                    filled[keys[:count] - place] = rows[:count]
                yield filled
                place, keys, rows = place + size, keys[count:], rows[count:]

    def _absent_rows(self, begin: int, size: int) -> Array:
        policy = self.plan.policy
        assert policy is not None
        keys = np.arange(begin, begin + size) + np.int64(self.plan.low)
        return policy.absent.lookup(keys, self.source.dim, self.source.dtype)


class _Pairs:
    """Scales and biases that were computed while codes were written, so that rows are quantized only once."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._held: list[Array] = []

    def begin(self) -> None:
        self._held = []

    def add(self, scale_bias: Array) -> None:
        self._held.append(scale_bias)

    @property
    def complete(self) -> bool:
        return sum(map(len, self._held)) == self._total

    def take(self) -> Array:
        """Return all of them and release them."""
        found = np.concatenate(self._held)
        self._held = []
        return found
