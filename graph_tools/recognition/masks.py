# SPDX-License-Identifier: Apache-2.0
"""Masks of padded sequences, and the tensors from which they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graph_tools.analysis.flat import Flat
from graph_tools.analysis.symbolic_shapes import Size, Sizes, product
from graph_tools.graph import Output, attribute, dtype_of, skip


@dataclass(frozen=True)
class Mask:
    """A mask of the positions of [rows, length] that count.

    Attributes
    ----------
    origin : Output
        The origin of the elements: equal for equal masks, whatever their dtype and shape.
    given : Output
        The input of an op: bool or float with one element for each position, or the lengths.
    dtype : DType
    """

    origin: Output
    given: Output
    dtype: Any

    @property
    def is_boolean(self) -> bool:
        return bool(self.dtype.name == "bool")


def alike(first: Size, second: Size) -> bool:
    """Return whether two numbers of rows are or may be equal; ops check this for each request."""
    return first == second or (first.known is None and second.known is None)


def find_mask(flat: Flat, output: Output, positions: Sizes) -> Mask | None:
    """Find the mask behind an output that has one element for each of the positions [rows, length].

    The output may be the mask repeated along a last dimension, cast, or made from lengths.
    """
    output = _before_repetition(flat, output)
    sizes = flat.sizes(output)
    if not sizes or product(sizes[1:]) != positions[1] or not alike(sizes[0], positions[0]):
        return None
    origin = flat.source(output)
    node = flat.direct(origin, "Cast")
    while node is not None and _is_boolean(flat, node.inputs[0]):
        # A cast of Boolean values loses nothing.
        origin = flat.source(node.inputs[0])
        node = flat.direct(origin, "Cast")
    lengths = _lengths(flat, origin, positions)
    if lengths is not None:
        return Mask(origin, lengths, dtype_of(flat.graph, lengths))
    dtype = dtype_of(flat.graph, origin)
    return Mask(origin, origin, dtype) if dtype is not None and dtype.name in {"bool", "float32"} else None


def find_masks(flat: Flat, output: Output, positions: Sizes) -> tuple[Mask, ...]:
    """Find the masks, of one dtype, that all select a position if an output is true; empty if it is no mask."""
    whole = find_mask(flat, output, positions)
    if whole is None:
        return ()
    parts = [find_mask(flat, part, positions) for part in _conjuncts(flat, whole.given)]
    found = tuple(part for part in parts if part is not None)
    return found if parts and len(found) == len(parts) and len({mask.dtype for mask in found}) == 1 else (whole,)


def _conjuncts(flat: Flat, output: Output) -> list[Output]:
    """Return the terms of a conjunction: `All(ConcatV2(a, b), -1)` with a and b expanded, or LogicalAnd."""
    node = flat.node(output, "All", "LogicalAnd")
    if node is None:
        return []
    if node.op == "LogicalAnd":
        same = all(flat.known(source) == flat.known(node.output()) for source in node.inputs)
        return [leaf for source in node.inputs for leaf in _conjuncts(flat, source) or [source]] if same else []
    joined = flat.direct(node.inputs[0], "ConcatV2")
    last = len(flat.known(node.inputs[0])) - 1
    if joined is None or flat.reduced(node) != (last,) or flat.shapes.numbers(joined.inputs[-1]) not in ([-1], [last]):
        return []
    parts = list(joined.inputs[:-1])
    return parts if all(flat.known(part)[-1:] == [1] for part in parts) else []


def comes_from_booleans(flat: Flat, output: Output) -> bool:
    """Return whether an output's elements are those of a Boolean tensor, cast or repeated."""
    for view in flat.views(output):
        node = flat.direct(view, "Cast", "Tile", "BroadcastTo")
        if node is not None:
            return _is_boolean(flat, node.inputs[0]) or comes_from_booleans(flat, node.inputs[0])
    return False


def _is_boolean(flat: Flat, output: Output) -> bool:
    import tensorflow as tf

    return bool(dtype_of(flat.graph, output) == tf.bool)


def _before_repetition(flat: Flat, output: Output) -> Output:
    """Return the input of a Tile or BroadcastTo that repeats dimensions of size 1 after the second."""
    for view in flat.views(output):
        node = flat.direct(view, "Tile", "BroadcastTo")
        if node is None:
            continue
        before, after = flat.known(node.inputs[0]), flat.known(view)
        if len(before) == len(after) == 3 and before[1:] == [after[1], 1] and after[1] is not None:
            return skip(flat.graph, node.inputs[0])
    return skip(flat.graph, output)


def _lengths(flat: Flat, origin: Output, positions: Sizes) -> Output | None:
    """Return the lengths in `Range(length) < lengths[:, None]`, by which tf.sequence_mask makes a mask."""
    node = flat.direct(origin, "Less", "Greater")
    if node is None:
        return None
    left, right = (skip(flat.graph, source) for source in node.inputs)
    numbers, lengths = (left, right) if node.op == "Less" else (right, left)
    counted, dtype = flat.values.constant(numbers), attribute(node, "T")
    length = positions[1].known
    if counted is None or length is None or dtype.name not in {"int32", "int64"}:
        return None
    if counted.size != length or not np.array_equal(counted.ravel(), np.arange(length)):
        return None
    sizes = flat.sizes(lengths)
    if not sizes or counted.shape[-1:] != (length,) or any(size.known != 1 for size in sizes[1:]) or len(sizes) < 2:
        return None
    return flat.source(lengths)
