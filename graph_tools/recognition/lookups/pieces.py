# SPDX-License-Identifier: Apache-2.0
"""Tensors that a group may produce, as found in a graph: an embedding plan with tensors instead of their numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from graph_tools.analysis.sizes import Size
from graph_tools.graph import Output
from graph_tools.live import PlanNumbers
from graph_tools.plans.embedding_parts import LAYOUTS, Step
from graph_tools.recognition.lookups.tables import TableSource
from graph_tools.tensors import Array


@dataclass(frozen=True)
class KeySource:
    """The steps from the values of a tensor to keys of a table; the fields are those of `embedding_plan.Key`.

    Attributes
    ----------
    length : Size or None
        The second size of dense values, if they have two.
    """

    values: Output
    steps: tuple[Step, ...] = ()
    layout: str = "dense"
    indices: Output | None = None
    shape: Output | None = None
    row_splits: Output | None = None
    segment_ids: Output | None = None
    rows: Output | None = None
    ignore: str | int | None = None
    ignore_negative: bool = False
    length: Size | None = None

    def features(self) -> Iterator[Output]:
        """Yield every tensor from which the key is computed."""
        yield self.values
        for name in LAYOUTS[self.layout]:
            yield getattr(self, name)

    def has_values_of(self, other: KeySource) -> bool:
        """Return whether another key is made of the same values, maybe by other steps."""
        return self.length == other.length and list(self.features()) == list(other.features())

    @property
    def may_be_none(self) -> bool:
        """Return whether a value may be ignored."""
        return self.ignore is not None or self.ignore_negative


@dataclass(frozen=True)
class Part:
    """Columns `offset` … `offset + width` of an output, flat.

    Attributes
    ----------
    offset, width : int
    accumulate : bool
    feature : Output or None
        The source of a copy or of a linear column.
    key : KeySource or None
        The key of a lookup; the fields from here to `empty` are for lookups only.
    table : TableSource or None
    factors : tuple of (KeySource, TableSource)
        Lookups of as many values, whose rows are multiplied with those of `table` before they are combined.
    combiner : str or None
    weights : Output or None
        Weights of the values of a combined lookup.
    positive_weights : bool
        Whether values whose weight is not above 0 are ignored.
    empty : int or str or None
    matrix : PlanNumbers or None
        Weights [k, w] of a linear column.
    """

    offset: int
    width: int
    accumulate: bool = False
    feature: Output | None = None
    key: KeySource | None = None
    table: TableSource | None = None
    factors: tuple[tuple[KeySource, TableSource], ...] = ()
    combiner: str | None = None
    weights: Output | None = None
    positive_weights: bool = False
    empty: int | str | None = None
    matrix: PlanNumbers | None = None

    def moved(self, by: int) -> Part:
        return replace(self, offset=self.offset + by)

    def added(self) -> Part:
        return replace(self, accumulate=True)

    def features(self) -> Iterator[Output]:
        """Yield every tensor from which the columns are computed."""
        if self.feature is not None:
            yield self.feature
        if self.key is not None:
            yield from self.key.features()
        for key, _ in self.factors:
            yield from key.features()
        if self.weights is not None:
            yield self.weights


@dataclass(frozen=True)
class Piece:
    """A tensor [batch, *shape] that a group may produce.

    Attributes
    ----------
    batch : Size
        The number of rows of all features, a number or symbol.
    shape : tuple of int, or (Symbol, int) for a sequence
    parts : tuple of Part
        The parts that compute its columns, row after row of `shape`; in a sequence, the columns of one position.
    initial : PlanNumbers or None
        The values [width] to which the parts are added; None: 0.
    sequence : KeySource or None
        A key whose values are [batch, T], where T is the first size of `shape`.
    """

    batch: Size
    shape: tuple[Size, ...]
    parts: tuple[Part, ...]
    initial: PlanNumbers | None = None
    sequence: KeySource | None = None

    @property
    def width(self) -> int:
        """Return the number of columns; in a sequence, of one position."""
        return row_width(self.shape[1:] if self.sequence is not None else self.shape)

    @property
    def looks_up(self) -> bool:
        return any(part.table is not None for part in self.parts)

    @property
    def is_plain(self) -> bool:
        """Return whether every column is written once, without sums."""
        return self.initial is None and not any(part.accumulate for part in self.parts)

    def start(self) -> Array:
        """Return `initial`, or a zero for each column."""
        return np.zeros(self.width, np.float32) if self.initial is None else self.initial.array

    def shaped(self, shape: tuple[Size, ...]) -> Piece:
        return replace(self, shape=shape)

    def features(self) -> Iterator[Output]:
        for part in self.parts:
            yield from part.features()


def row_width(shape: tuple[Size, ...]) -> int:
    """Return the number of elements of a shape of numbers."""
    return math.prod(static(shape))


def static(shape: tuple[Size, ...]) -> tuple[int, ...]:
    """Return the sizes of a shape that are numbers."""
    return tuple(size for size in shape if isinstance(size, int))


def is_static(shape: tuple[Size, ...]) -> bool:
    return all(isinstance(size, int) for size in shape)


def positions(piece: Piece) -> int | None:
    """Return T if a flat piece [batch, T, w] consists of lookups of T values each, so that it is also a sequence."""
    if len(piece.shape) != 2 or not is_static(piece.shape) or not piece.is_plain or piece.sequence is not None:
        return None
    count = static(piece.shape)[0]
    part = piece.parts[0]
    if len(piece.parts) != 1 or part.key is None or part.key.length != count:
        return None
    whole = part.table is not None and part.combiner is None and part.width == piece.width
    return count if whole and part.table is not None and part.table.dim * count == part.width else None


def as_sequence(piece: Piece) -> Piece | None:
    """Return a piece [batch, T, w] as a sequence, if it can be one."""
    if piece.sequence is not None:
        return piece
    count = positions(piece)
    if count is None:
        return None
    part = piece.parts[0]
    assert part.table is not None
    return replace(piece, parts=(replace(part, width=part.table.dim),), sequence=part.key)
