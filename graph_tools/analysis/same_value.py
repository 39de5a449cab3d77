# SPDX-License-Identifier: Apache-2.0
"""Rules that prove that a node's first output equals one of its inputs, in shape and every element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graph_tools.analysis.shapes import Shape, ShapeOf
from graph_tools.analysis.sizes import SizeFinder
from graph_tools.analysis.values import Values
from graph_tools.graph import Node, Output, attribute
from graph_tools.model import Model
from graph_tools.tensors import Array

#: Ops that keep the elements and their order, and change the shape only.
RESHAPES = ("Reshape", "Squeeze", "ExpandDims")


class Rules:
    """Rules for a snapshot of a graph; they must not be applied to nodes that are removed since."""

    def __init__(self, model: Model, shape_of: ShapeOf) -> None:
        self.model, self.graph, self.shape_of = model, model.graph, shape_of
        self.values = Values(model)
        sizes = SizeFinder(model)
        self._same_sizes = {node.name for node in model.graph.of("Reshape") if sizes.is_same_shape(node)}

    def equal_input(self, node: Node) -> Output | None:
        """Return the input, or an output before it, that equals a node's output, or None."""
        rule = _RULES.get(node.op)
        return rule(self, node) if rule is not None else None

    def constant(self, node: Node, index: int) -> Array | None:
        return self.values.constant(node.inputs[index])

    def shape_kept(self, source: Output, node: Node) -> bool:
        """Return whether two tensors with equal numbers of elements have one shape: at most one size is not known."""
        return _equal_shapes(self.shape_of(source), self.shape_of(node.output()))

    def reshape(self, node: Node) -> Output | None:
        source = node.inputs[0]
        if node.name in self._same_sizes:
            return source
        while True:
            if self.shape_kept(source, node):
                return source
            before = self.graph[source.node]
            if before.op not in RESHAPES or before.controls:
                return None
            source = before.inputs[0]

    def transpose(self, node: Node) -> Output | None:
        order = self.constant(node, 1)
        if order is None:
            return None
        if order.tolist() == list(range(len(order))):
            return node.inputs[0]
        before = self.graph[node.inputs[0].node]
        first = self.values.constant(before.inputs[1]) if before.op == "Transpose" and not before.controls else None
        if first is not None and first[order].tolist() == list(range(len(order))):
            return before.inputs[0]
        return None

    def cast(self, node: Node) -> Output | None:
        return node.inputs[0] if attribute(node, "SrcT") == attribute(node, "DstT") else None

    def pad(self, node: Node) -> Output | None:
        widths = self.constant(node, 1)
        return node.inputs[0] if widths is not None and not widths.any() else None

    def tile(self, node: Node) -> Output | None:
        times = self.constant(node, 1)
        return node.inputs[0] if times is not None and (times == 1).all() else None

    def slice(self, node: Node) -> Output | None:
        begin, size, shape = self.constant(node, 1), self.constant(node, 2), self.shape_of(node.inputs[0])
        if begin is None or size is None or begin.any():
            return None
        known = shape if shape is not None else (None,) * len(size)
        full = all(wanted in (-1, have) for wanted, have in zip(size.tolist(), known, strict=True))
        return node.inputs[0] if full else None

    def strided_slice(self, node: Node) -> Output | None:
        if any(attribute(node, key, 0) for key in ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")):
            return None
        begin, end, step = (self.constant(node, i) for i in (1, 2, 3))
        shape = self.shape_of(node.inputs[0])
        if begin is None or end is None or step is None or shape is None or not (step == 1).all():
            return None
        for axis, size in enumerate(shape[: len(begin)]):
            open_begin = attribute(node, "begin_mask", 0) >> axis & 1
            open_end = attribute(node, "end_mask", 0) >> axis & 1
            if not (open_begin or begin[axis] == 0 or (size is not None and begin[axis] <= -size)):
                return None
            if not (open_end or (size is not None and end[axis] >= size)):
                return None
        return node.inputs[0]

    def only_one(self, node: Node) -> Output | None:
        """Return the only input of a node over a list of tensors, or None."""
        return node.inputs[0] if attribute(node, "N") == 1 else None

    def one_split(self, node: Node) -> Output | None:
        return node.inputs[1 if node.op == "Split" else 0] if attribute(node, "num_split") == 1 else None

    def broadcast_to(self, node: Node) -> Output | None:
        before, after = self.shape_of(node.inputs[0]), self.shape_of(node.output())
        return node.inputs[0] if before is not None and before == after and None not in before else None

    def neutral(self, node: Node, number: int, sides: tuple[int, ...]) -> Output | None:
        """Return the other operand if one changes nothing: its elements are all `number`, and it is not larger."""
        for side in sides:
            source = node.inputs[1 - side]
            value = self.constant(node, side)
            if value is None or value.dtype == object or not value.size or not np.all(value == number):
                continue
            if not broadcasts(value.shape, self.shape_of(source)):
                return source
        return None


def broadcasts(small: tuple[int, ...], large: Shape) -> bool:
    """Return whether combining with a tensor of the shape `small` may change the shape `large`."""
    if not small:
        return False
    if large is None or len(small) > len(large):
        return True
    tail = large[len(large) - len(small) :]
    return any(size not in (1, have) for size, have in zip(small, tail, strict=True))


def _equal_shapes(first: Shape, second: Shape) -> bool:
    if first is None or second is None or len(first) != len(second):
        return False
    unknown = 0
    for a, b in zip(first, second, strict=True):
        if a == 0 or b == 0:
            return first == second and None not in first
        if a is None or b is None:
            unknown += 1
        elif a != b:
            return False
    return unknown <= 1


def _add(rules: Rules, node: Node) -> Output | None:
    return rules.neutral(node, 0, (0, 1))


def _subtract(rules: Rules, node: Node) -> Output | None:
    return rules.neutral(node, 0, (1,))


def _multiply(rules: Rules, node: Node) -> Output | None:
    return rules.neutral(node, 1, (0, 1))


def _divide(rules: Rules, node: Node) -> Output | None:
    return rules.neutral(node, 1, (1,))


_RULES: dict[str, Callable[[Rules, Node], Output | None]] = {
    **dict.fromkeys(RESHAPES, Rules.reshape),
    "Transpose": Rules.transpose,
    "Cast": Rules.cast,
    "Pad": Rules.pad,
    "PadV2": Rules.pad,
    "MirrorPad": Rules.pad,
    "Tile": Rules.tile,
    "Slice": Rules.slice,
    "StridedSlice": Rules.strided_slice,
    "AddN": Rules.only_one,
    "Split": Rules.one_split,
    "SplitV": Rules.one_split,
    "BroadcastTo": Rules.broadcast_to,
    "Add": _add,
    "AddV2": _add,
    "BiasAdd": _subtract,
    "Sub": _subtract,
    "Mul": _multiply,
    "Div": _divide,
    "RealDiv": _divide,
    "DivNoNan": _divide,
}

#: Ops for which there is a rule.
OPS = tuple(_RULES)
