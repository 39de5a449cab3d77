# SPDX-License-Identifier: Apache-2.0
"""What a group may produce, as it is found in a graph: columns of an output, with tensors in the place of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from graph_tools.analysis.sizes import Size
from graph_tools.graph import Output
from graph_tools.plans.embedding_parts import LAYOUTS, Step
from graph_tools.recognition.lookups.tables import TableSource


@dataclass(frozen=True)
class KeySource:
    """How the values of a tensor become keys of a table; the fields are those of `embedding_plan.Key`.

    Attributes
    ----------
    length : Size or None
        The second size of dense values, where they have two.
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
        """Yield every tensor that the key is made from."""
        yield self.values
        for name in LAYOUTS[self.layout]:
            yield getattr(self, name)

    @property
    def may_be_none(self) -> bool:
        """Whether a value may count as none."""
        return self.ignore is not None or self.ignore_negative


@dataclass(frozen=True)
class Part:
    """Columns `offset` … `offset + width` of an output, flat.

    Attributes
    ----------
    offset, width : int
    accumulate : bool
    feature : Output or None
        Of a copy, or with `weights` of a linear column.
    key : KeySource or None
        Of a lookup, as all that follow.
    table : TableSource or None
    combiner : str or None
    weights : Output or None
        Of the values of a combined lookup.
    positive_weights : bool
        Values whose weight is not above 0 count as none.
    empty : int or str or None
    matrix : tuple of tuple of float or None
        Weights [k, w] of a linear column.
    """

    offset: int
    width: int
    accumulate: bool = False
    feature: Output | None = None
    key: KeySource | None = None
    table: TableSource | None = None
    combiner: str | None = None
    weights: Output | None = None
    positive_weights: bool = False
    empty: int | str | None = None
    matrix: tuple[tuple[float, ...], ...] | None = None

    def moved(self, by: int) -> Part:
        return replace(self, offset=self.offset + by)

    def added(self) -> Part:
        return replace(self, accumulate=True)

    def features(self) -> Iterator[Output]:
        """Yield every tensor that the columns are made from."""
        if self.feature is not None:
            yield self.feature
        if self.key is not None:
            yield from self.key.features()
        if self.weights is not None:
            yield self.weights


@dataclass(frozen=True)
class Piece:
    """A tensor [batch, *shape] that a group may produce.

    Attributes
    ----------
    batch : Size
        A number or symbol; of all features.
    shape : tuple of int, or (Symbol, int) for a sequence
    parts : tuple of Part
        What makes its columns, row after row of `shape`; in a sequence, those of one position.
    initial : tuple of float, or ()
        What the parts add to; (): 0.
    sequence : KeySource or None
        A key whose values are [batch, T], T being the first of `shape`.
    """

    batch: Size
    shape: tuple[Size, ...]
    parts: tuple[Part, ...]
    initial: tuple[float, ...] = ()
    sequence: KeySource | None = None

    @property
    def width(self) -> int:
        """Number of columns; in a sequence, of one position."""
        return row_width(self.shape[1:] if self.sequence is not None else self.shape)

    @property
    def looks_up(self) -> bool:
        return any(part.table is not None for part in self.parts)

    @property
    def is_plain(self) -> bool:
        """Whether nothing is added up: every column is written once."""
        return not self.initial and not any(part.accumulate for part in self.parts)

    def start(self) -> tuple[float, ...]:
        """Return `initial`, or as many zeros."""
        return self.initial or (0.0,) * self.width

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
    return tuple(one for one in shape if isinstance(one, int))


def is_static(shape: tuple[Size, ...]) -> bool:
    return all(isinstance(one, int) for one in shape)


def positions(piece: Piece) -> int | None:
    """Return T where a flat piece [batch, T, w] is made of lookups of T values each, so that it is a sequence too."""
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
