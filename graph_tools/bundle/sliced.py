# SPDX-License-Identifier: Apache-2.0
"""Assemble a partitioned variable while its slices are read side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from graph_tools.bundle.stored import Cursor, StoredTensor
from graph_tools.tensors import Array, BaseTensor


@dataclass(frozen=True)
class Slice:
    """A slice and its position.

    Attributes
    ----------
    starts : tuple of int
        Start of the slice in each dimension of the whole tensor.
    tensor : StoredTensor
        Its shape is that of the slice.
    """

    starts: tuple[int, ...]
    tensor: StoredTensor

    @property
    def rows(self) -> tuple[int, int]:
        return self.starts[0], self.starts[0] + self.tensor.shape[0]

    def is_within(self, shape: tuple[int, ...]) -> bool:
        places = zip(self.starts, self.tensor.shape, shape, strict=True)
        return all(0 <= start <= start + length <= size for start, length, size in places)

    def inner(self) -> tuple[slice, ...]:
        """Return its position in every dimension but the first."""
        return tuple(slice(s, s + n) for s, n in zip(self.starts[1:], self.tensor.shape[1:], strict=True))

    def is_disjoint(self, other: Slice) -> bool:
        """Return whether two slices have no element of a row in common."""
        pairs = zip(self.inner(), other.inner(), strict=True)
        return any(left.stop <= right.start or right.stop <= left.start for left, right in pairs)


@dataclass(frozen=True)
class _Band:
    """Rows that the same slices cover."""

    begin: int
    end: int
    slices: tuple[Slice, ...]


class SlicedTensor(BaseTensor):
    """A tensor in slices that cover each element once; a slice that spans whole rows is not copied.

    Raises
    ------
    ValueError
        The slices overlap, leave a gap or exceed the tensor.
    """

    def __init__(self, dtype: np.dtype[Any], shape: tuple[int, ...], slices: list[Slice]) -> None:
        self.dtype = dtype
        self.shape = shape
        self._bands = _bands(shape, [part for part in slices if math.prod(part.tensor.shape)])

    def chunks(self, rows: int) -> Iterator[Array]:
        with ExitStack() as stack:
            cursors: dict[Slice, Cursor] = {}
            for band in self._bands:
                for part in band.slices:
                    if part not in cursors:
                        cursors[part] = stack.enter_context(closing(part.tensor.cursor()))
                yield from self._band_chunks(band, [cursors[part] for part in band.slices], rows)
                for part in band.slices:
                    if part.rows[1] == band.end:
                        cursors[part].close()

    def _band_chunks(self, band: _Band, cursors: list[Cursor], rows: int) -> Iterator[Array]:
        left = band.end - band.begin
        while left:
            count = min((cursor.fit(min(rows, left)) for cursor in cursors), default=min(rows, left))
            if len(cursors) == 1:
                yield cursors[0].take(count)
            else:
                block = np.empty((count, *self.shape[1:]), self.dtype)
                for part, cursor in zip(band.slices, cursors, strict=True):
                    block[:, *part.inner()] = cursor.take(count)
                yield block
            left -= count


def _bands(shape: tuple[int, ...], slices: list[Slice]) -> list[_Band]:
    if not all(part.is_within(shape) for part in slices):
        raise ValueError("a slice beyond its bounds")
    if not math.prod(shape):
        return [_Band(0, shape[0], ())]
    edges = sorted({0, shape[0]} | {edge for part in slices for edge in part.rows})
    waiting = sorted(slices, key=lambda part: part.rows, reverse=True)
    active: list[Slice] = []
    bands = []
    for begin, end in pairwise(edges):
        active = [part for part in active if part.rows[1] > begin]
        while waiting and waiting[-1].rows[0] == begin:
            active.append(waiting.pop())
        covered = sum(math.prod(part.tensor.shape[1:]) for part in active)
        if covered != math.prod(shape[1:]) or not all(a.is_disjoint(b) for a, b in combinations(active, 2)):
            raise ValueError(f"slices that cover rows {begin} to {end - 1} in part or twice")
        bands.append(_Band(begin, end, tuple(active)))
    return bands
