# SPDX-License-Identifier: Apache-2.0
"""The parts of an embedding plan: steps from values to keys, keys, columns and outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

#: The features that a layout needs in addition to the values, as fields of `Key`.
LAYOUTS = {
    "dense": (),
    "sparse": ("indices", "shape"),
    "ragged": ("row_splits",),
    "segments": ("segment_ids", "rows"),
}
COMBINERS = ("sum", "mean", "sqrtn")


@dataclass(frozen=True)
class FastHash:
    """`StringToHashBucketFast`."""

    op: ClassVar[str] = "fast_hash"
    buckets: int


@dataclass(frozen=True)
class StrongHash:
    """`StringToHashBucketStrong`; `key` contains the two numbers of SipHash's key, as in the op's attribute."""

    op: ClassVar[str] = "strong_hash"
    buckets: int
    key: tuple[int, ...]


@dataclass(frozen=True)
class LegacyHash:
    """`StringToHashBucket`."""

    op: ClassVar[str] = "legacy_hash"
    buckets: int


@dataclass(frozen=True)
class ToString:
    """`AsString` of an integer."""

    op: ClassVar[str] = "to_string"


@dataclass(frozen=True)
class Mod:
    """`FloorMod`."""

    op: ClassVar[str] = "mod"
    by: int


@dataclass(frozen=True)
class Add:
    op: ClassVar[str] = "add"
    value: int


@dataclass(frozen=True)
class Multiply:
    op: ClassVar[str] = "multiply"
    value: int


@dataclass(frozen=True)
class Clip:
    op: ClassVar[str] = "clip"
    low: int
    high: int


@dataclass(frozen=True)
class WrapNegative:
    """Adds `by` to numbers below 0, as in Keras 3, where negative ids count from the end of a table."""

    op: ClassVar[str] = "wrap_negative"
    by: int


@dataclass(frozen=True)
class Bucketize:
    """`Bucketize`; the boundaries ascend."""

    op: ClassVar[str] = "bucketize"
    boundaries: tuple[float, ...]


@dataclass(frozen=True)
class Divide:
    """`FloorDiv`."""

    op: ClassVar[str] = "divide"
    by: int


@dataclass(frozen=True)
class XorShift:
    """`BitwiseXor` of the 64 bits of a number with the same bits, shifted towards the lowest by `by`."""

    op: ClassVar[str] = "xor_shift"
    by: int


@dataclass(frozen=True)
class Bits:
    """The number that the bits `first`, `first + every` … of a number form, the first one as the lowest."""

    op: ClassVar[str] = "bits"
    first: int
    count: int
    every: int = 1


Step = (
    FastHash
    | StrongHash
    | LegacyHash
    | ToString
    | Mod
    | Add
    | Multiply
    | Clip
    | WrapNegative
    | Bucketize
    | Divide
    | XorShift
    | Bits
)


@dataclass(frozen=True)
class Key:
    """The steps from the values of a feature to keys or row numbers of a table.

    Attributes
    ----------
    feature : int
    layout : str
        `dense`, `sparse`, `ragged` or `segments`.
    indices, shape, row_splits, segment_ids, rows : int or None
        Features that the layout needs.
    ignore : str or int or None
        A value that is ignored, compared before the steps.
    ignore_negative : bool
        Whether a number below 0 after the steps is ignored.
    steps : tuple of Step
    """

    feature: int
    layout: str = "dense"
    indices: int | None = None
    shape: int | None = None
    row_splits: int | None = None
    segment_ids: int | None = None
    rows: int | None = None
    ignore: str | int | None = None
    ignore_negative: bool = False
    steps: tuple[Step, ...] = ()

    def features(self) -> Iterator[int]:
        """Yield every feature from which the key is computed."""
        yield self.feature
        for name in LAYOUTS.get(self.layout, ()):
            yield getattr(self, name)

    def is_laid_out_as(self, other: Key) -> bool:
        """Return whether the values belong to rows of the batch as those of another key, if they are as many."""
        fields = ("layout", *LAYOUTS.get(self.layout, ()))
        return all(getattr(self, name) == getattr(other, name) for name in fields)


@dataclass(frozen=True)
class Factor:
    """Rows of a table for a key that is made of as many values as that of the lookup."""

    key: int
    table: int


@dataclass(frozen=True)
class Lookup:
    """The rows of a table for a key; with `combiner` None, they are side by side.

    Attributes
    ----------
    factors : tuple of Factor
        Each value's row is multiplied with those of the factors, element by element, before rows are combined.
    weights : int or None
        A float feature with the layout of the key's values.
    positive_weights : bool
        Whether a value whose weight is not above 0 is ignored.
    empty : str or int or None
        The key whose row is used if a row of the batch has no value; None: zeros.
    accumulate : bool
        Whether to add to the output instead of writing it.
    """

    kind: ClassVar[str] = "lookup"
    key: int
    table: int
    output: int
    offset: int
    combiner: str | None = None
    weights: int | None = None
    positive_weights: bool = False
    empty: str | int | None = None
    accumulate: bool = False
    factors: tuple[Factor, ...] = ()


@dataclass(frozen=True)
class Copy:
    """Elements of a number feature, cast to float."""

    kind: ClassVar[str] = "copy"
    feature: int
    output: int
    offset: int
    width: int
    accumulate: bool = False


@dataclass(frozen=True)
class Linear:
    """A float feature [batch, k] times `weights` [k, w]."""

    kind: ClassVar[str] = "linear"
    feature: int
    output: int
    offset: int
    weights: tuple[tuple[float, ...], ...]
    accumulate: bool = False


Column = Lookup | Copy | Linear


@dataclass(frozen=True)
class GroupOutput:
    """An output [batch, width], or [batch, T, width] if `sequence` is the number of the key that has T.

    Attributes
    ----------
    initial : tuple of float [width], or None
        The initial elements, which remain if no column writes them; None: 0.
    """

    width: int
    initial: tuple[float, ...] | None = None
    sequence: int | None = None
