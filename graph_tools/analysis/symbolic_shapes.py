# SPDX-License-Identifier: Apache-2.0
"""Represent sizes that are not known before a request by symbols, and find equal sizes and products of sizes.

TensorFlow's own inference forgets that `Reshape(x, [Prod(Shape(x)[:2]), 8])` has as many rows as x. Keras and
`tf.tensordot` write a layer over more than two dimensions in this form.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from graph_tools.analysis.shapes import ShapeOf
from graph_tools.graph import Graph, Node, Output, attribute, constant


class Size(NamedTuple):
    """A number times symbols; a symbol is a size of some tensor: (node, port, axis)."""

    number: int
    symbols: tuple[tuple[str, int, int], ...] = ()

    @property
    def known(self) -> int | None:
        return None if self.symbols else self.number


Sizes = tuple[Size, ...]

_ONE = Size(1)
_MOST_SIZES = 16
_SAME_AS_FIRST = {
    "Abs", "BiasAdd", "Cast", "Elu", "Erf", "Erfc", "Exp", "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3",
    "Identity", "LeakyRelu", "Log", "LogSoftmax", "Neg", "OnesLike", "Relu", "Relu6", "Rsqrt", "Selu", "Sigmoid",
    "Snapshot", "Softmax", "Softplus", "Sqrt", "Square", "StopGradient", "Tanh", "ZerosLike",
}  # fmt: skip
_BROADCASTS = {
    "Add", "AddV2", "AddN", "Div", "DivNoNan", "Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd",
    "LogicalOr", "Maximum", "Minimum", "Mul", "NotEqual", "Pow", "RealDiv", "SelectV2", "SquaredDifference", "Sub",
}  # fmt: skip


def product(sizes: Iterable[Size]) -> Size:
    """Multiply sizes."""
    sizes = list(sizes)
    return Size(math.prod(size.number for size in sizes), tuple(sorted(s for one in sizes for s in one.symbols)))


def quotient(whole: Size, part: Size) -> Size | None:
    """Divide sizes, or return None if the quotient is not a size."""
    left = list(whole.symbols)
    for symbol in part.symbols:
        if symbol not in left:
            return None
        left.remove(symbol)
    if not part.number or whole.number % part.number:
        return None
    return Size(whole.number // part.number, tuple(left))


class SymbolicShapes:
    """Finds symbolic sizes in a snapshot of a graph, made when this object is created.

    Parameters
    ----------
    graph : Graph
    shape_of : callable
        The static shapes of its outputs.
    """

    def __init__(self, graph: Graph, shape_of: ShapeOf) -> None:
        self.graph, self.shape_of = graph, shape_of
        self._shapes: dict[Output, Sizes | None] = {}
        self._values: dict[Output, Sizes | None] = {}
        for node in graph.ordered():  # in order, so that recursion never exceeds Python's stack
            self._follow(node)

    def of(self, output: Output) -> Sizes | None:
        """Return the sizes of an output, or None if its rank is not known."""
        if output not in self._shapes:
            same = output.port and self.graph.source(output).op == "Split"
            self._shapes[output] = self._shapes.get(Output(output.node)) if same else self._static(output)
        return self._shapes[output]

    def complete(self, known: dict[tuple[str, int, int], int]) -> None:
        """Replace symbols by numbers that are known by now."""

        def completed(size: Size) -> Size:
            factor = math.prod(known[symbol] for symbol in size.symbols if symbol in known)
            return Size(size.number * factor, tuple(one for one in size.symbols if one not in known))

        for found in (self._shapes, self._values):
            for output, sizes in found.items():
                if sizes and any(symbol in known for one in sizes for symbol in one.symbols):
                    found[output] = tuple(map(completed, sizes))

    def _rule(self, op: str) -> Rule | None:
        """Return the rule that finds the sizes of the first output of an op."""
        return _RULES.get(op)

    def _follow(self, node: Node) -> None:
        output = node.output()
        rule = self._rule(node.op)
        found = rule(self, node) if rule and not _in_loop(self, node) else None
        static = self._static(output)
        if found is not None and static is not None and len(found) == len(static):
            # Use the sizes that TensorFlow knows; the others may be known to equal some symbol.
            static = tuple(b if b.known is not None else a for a, b in zip(found, static, strict=True))
        self._shapes[output] = static if static is not None else found
        rule = _VALUE_RULES.get(node.op)
        if rule and _holds_integers(node) and not _in_loop(self, node):
            self._values[output] = rule(self, node)

    def _static(self, output: Output) -> Sizes | None:
        shape = self.shape_of(output)
        if shape is None:
            return None
        found = [Size(1, ((*output, i),)) if one is None else Size(one) for i, one in enumerate(shape)]
        if found and self.graph[output.node].op == "RecCollapseRows":
            found[0] = Size(1, ((output.node, 0, 0),))  # all its outputs have the same number of rows
        looked_up = _looked_up(self, output) if len(found) == 3 else None
        if looked_up is not None:
            # A row for each value of a feature, whose sizes TensorFlow may not know.
            found[:2] = [b if a.known is None else a for a, b in zip(found[:2], looked_up, strict=True)]
        return tuple(found)

    # Values of integer tensors of rank 0 and 1

    def value(self, output: Output) -> Sizes | None:
        """Return the elements of a small integer tensor of sizes, or None."""
        if output not in self._values:
            array = constant(self.graph, output)
            if array is not None and array.dtype.kind in "iu" and array.ndim <= 1 and array.size <= _MOST_SIZES:
                self._values[output] = tuple(Size(int(one)) for one in array.ravel())
            else:
                self._values[output] = None
        return self._values[output]

    def numbers(self, output: Output) -> list[int] | None:
        """Return the elements of a small constant integer tensor, or None."""
        found = self.value(output)
        if found is None or any(one.symbols for one in found):
            return None
        return [one.number for one in found]


def _holds_integers(node: Node) -> bool:
    if node.op == "Shape":
        return True
    dtype = next((attribute(node, one) for one in ("DstT", "Tparams", "T") if one in node.attrs), None)
    return dtype is None or bool(dtype.is_integer)


def _in_loop(shapes: SymbolicShapes, node: Node) -> bool:
    """Return whether an input of a node has not been visited yet, as in loops of TF 1."""
    return any(source not in shapes._shapes and not source.port for source in node.inputs)


def _broadcast(shapes: list[Sizes]) -> Sizes | None:
    rank = max(map(len, shapes))
    padded = [(_ONE,) * (rank - len(shape)) + shape for shape in shapes]
    found: list[Size] = []
    for sizes in zip(*padded, strict=True):
        others = {size for size in sizes if size != _ONE}
        if len(others) > 1:
            return None
        found.append(others.pop() if others else _ONE)
    return tuple(found)


def _inputs(shapes: SymbolicShapes, node: Node) -> list[Sizes] | None:
    found = [shapes.of(source) for source in node.inputs]
    return None if any(one is None for one in found) else [one for one in found if one is not None]


def _elementwise(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    found = _inputs(shapes, node)
    return _broadcast(found) if found else None


def _first(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    return shapes.of(node.inputs[0])


def _expanded(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    value, like = (shapes.of(source) for source in node.inputs)
    return (like[0], *value[1:]) if value and like else None


def _mat_mul(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    found = _inputs(shapes, node)
    if found is None or min(len(one) for one in found[:2]) < 2:
        return None
    a, b = found[:2]
    turned = [attribute(node, one, False) or attribute(node, two, False) for one, two in _TRANSPOSES]
    rows, columns = a[-1 if turned[0] else -2], b[-2 if turned[1] else -1]
    lead = _broadcast([a[:-2], b[:-2]])
    return None if lead is None else (*lead, rows, columns)


_TRANSPOSES = (("transpose_a", "adj_x"), ("transpose_b", "adj_y"))


def _einsum(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    equation = attribute(node, "equation", b"").decode().replace(" ", "")
    left, arrow, result = equation.partition("->")
    operands, found = left.split(","), _inputs(shapes, node)
    if not arrow or "." in equation or found is None:
        return None
    if any(len(letters) != len(sizes) for letters, sizes in zip(operands, found, strict=True)):
        return None
    sizes = {letter: size for pair in zip(operands, found, strict=True) for letter, size in zip(*pair, strict=True)}
    return tuple(sizes[letter] for letter in result) if set(result) <= set(sizes) else None


def _reshape(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    before, target = shapes.of(node.inputs[0]), shapes.value(node.inputs[1])
    if target is None:
        return None
    if Size(-1) not in target:
        return target
    if before is None or target.count(Size(-1)) > 1:
        return None
    rest = quotient(product(before), product(one for one in target if one != Size(-1)))
    return None if rest is None else tuple(rest if one == Size(-1) else one for one in target)


def _expand(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    before, axis = shapes.of(node.inputs[0]), shapes.numbers(node.inputs[1])
    if before is None or axis is None or len(axis) != 1:
        return None
    at = axis[0] if axis[0] >= 0 else axis[0] + len(before) + 1
    return (*before[:at], _ONE, *before[at:])


def _squeeze(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    before, axes = shapes.of(node.inputs[0]), attribute(node, "squeeze_dims", [])
    if before is None or not axes:
        return None
    gone = {axis % len(before) for axis in axes}
    return tuple(one for i, one in enumerate(before) if i not in gone)


def _concat(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    axis = shapes.numbers(node.inputs[-1])
    found = [shapes.of(source) for source in node.inputs[:-1]]
    if axis is None or len(axis) != 1 or any(one is None or len(one) != len(found[0] or ()) for one in found):
        return None
    known = [one for one in found if one]
    if not known:
        return None
    at = axis[0] % len(known[0])
    sizes = [one[at].known for one in known]
    along = Size(sum(size or 0 for size in sizes)) if None not in sizes else Size(1, ((node.name, 0, at),))
    return (*known[0][:at], along, *known[0][at + 1 :])


def _pack(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    before = shapes.of(node.inputs[0])
    if before is None:
        return None
    at = attribute(node, "axis", 0)
    at = at if at >= 0 else at + len(before) + 1
    return (*before[:at], Size(len(node.inputs)), *before[at:])


def _tile(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    before, times = shapes.of(node.inputs[0]), shapes.value(node.inputs[1])
    if before is None or times is None or len(before) != len(times):
        return None
    return tuple(product(both) for both in zip(before, times, strict=True))


def _split(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    axis, before = shapes.numbers(node.inputs[0]), shapes.of(node.inputs[1])
    if before is None or axis is None or len(axis) != 1:
        return None
    at, parts = axis[0] % len(before), Size(attribute(node, "num_split", 1))
    part = quotient(before[at], parts)
    return None if part is None else (*before[:at], part, *before[at + 1 :])


def _transpose(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    before, order = shapes.of(node.inputs[0]), shapes.numbers(node.inputs[1])
    if before is None or order is None or len(order) != len(before):
        return None
    return tuple(before[one] for one in order)


def _reduce(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    before, axes = shapes.of(node.inputs[0]), shapes.numbers(node.inputs[1])
    if not before or axes is None:
        return None
    gone = {axis % len(before) for axis in axes}
    if attribute(node, "keep_dims", False):
        return tuple(_ONE if i in gone else one for i, one in enumerate(before))
    return tuple(one for i, one in enumerate(before) if i not in gone)


def _gather(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    """Return the sizes of the rows that indices select from a table."""
    if attribute(node, "batch_dims", 0):
        return None
    if node.op == "GatherV2" and shapes.numbers(node.inputs[2]) != [0]:
        return None
    rows, indices = shapes.shape_of(node.output()), shapes.of(node.inputs[1])
    if rows is None or indices is None or len(rows) < len(indices) or None in rows[len(indices) :]:
        return None
    return (*indices, *(Size(row or 0) for row in rows[len(indices) :]))


Rule = Callable[[SymbolicShapes, Node], Sizes | None]


def _looked_up(shapes: SymbolicShapes, output: Output) -> Sizes | None:
    """Return the sizes of a feature [rows, positions] for whose values a group of lookups returns a row each."""
    node = shapes.graph[output.node]
    if node.op != "RecEmbeddingGroup":
        return None
    plan = json.loads(attribute(node, "plan"))
    key = plan["outputs"][output.port].get("sequence")
    ids = None if key is None else shapes.of(node.inputs[plan["keys"][key]["feature"]])
    return ids if ids is not None and len(ids) == 2 else None


def _sliced(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    """Follow `x[..., None]` and similar slices, which only add dimensions."""
    sizes, steps = shapes.of(node.inputs[0]), shapes.numbers(node.inputs[3])
    begin, end, new, ellipsis = (attribute(node, f"{one}_mask", 0) for one in ("begin", "end", "new_axis", "ellipsis"))
    if sizes is None or steps is None or attribute(node, "shrink_axis_mask", 0):
        return None
    found: list[Size] = []
    taken, rest = 0, len(sizes) - sum(not (new | ellipsis) >> i & 1 for i in range(len(steps)))
    for i, step in enumerate(steps):
        if ellipsis >> i & 1:
            found += sizes[taken : taken + rest]
            taken += rest
        elif new >> i & 1:
            found.append(_ONE)
        elif step == 1 and begin & end & 1 << i:
            found.append(sizes[taken])
            taken += 1
        else:
            return None
    return (*found, *sizes[taken:])


_RULES: dict[str, Rule] = {
    **dict.fromkeys(_SAME_AS_FIRST, _first),
    **dict.fromkeys(_BROADCASTS, _elementwise),
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _mat_mul),
    **dict.fromkeys(("Sum", "Mean", "Max", "Min", "Prod", "All", "Any"), _reduce),
    **dict.fromkeys(("GatherV2", "ResourceGather", "Gather"), _gather),
    "Einsum": _einsum,
    "RecExpandRows": _expanded,
    "Reshape": _reshape,
    "ExpandDims": _expand,
    "Squeeze": _squeeze,
    "ConcatV2": _concat,
    "Pack": _pack,
    "Tile": _tile,
    "Split": _split,
    "StridedSlice": _sliced,
    "Transpose": _transpose,
}


def _value_of_shape(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    return shapes.of(node.inputs[0])


def _value_of_prod(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    found = shapes.value(node.inputs[0])
    return None if found is None or shapes.numbers(node.inputs[1]) not in ([0], [-1]) else (product(found),)


def _value_of_mul(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    a, b = (shapes.value(source) for source in node.inputs)
    return (product([a[0], b[0]]),) if a and b and len(a) == len(b) == 1 else None


def _value_of_gather(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    found, indices = shapes.value(node.inputs[0]), shapes.numbers(node.inputs[1])
    if found is None or indices is None or any(not -len(found) <= index < len(found) for index in indices):
        return None
    return tuple(found[one] for one in indices)


def _value_of_parts(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    parts = [shapes.value(source) for source in (node.inputs[:-1] if node.op == "ConcatV2" else node.inputs)]
    return None if any(part is None for part in parts) else tuple(size for one in parts for size in one or ())


def _value_of_slice(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    found = shapes.value(node.inputs[0])
    begin, end, step = (shapes.numbers(source) for source in node.inputs[1:4])
    masks = ("begin_mask", "end_mask", "shrink_axis_mask", "ellipsis_mask", "new_axis_mask")
    begin_open, end_open, shrink, ellipsis, new_axis = (attribute(node, key, 0) for key in masks)
    if found is None or not begin or not end or not step or len(begin) != 1 or ellipsis or new_axis:
        return None
    if shrink:
        return (found[begin[0]],) if -len(found) <= begin[0] < len(found) else None
    return found[slice(None if begin_open else begin[0], None if end_open else end[0], step[0])]


def _value_of_first(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    return shapes.value(node.inputs[0])


_VALUE_RULES: dict[str, Rule] = {
    "Shape": _value_of_shape,
    "Prod": _value_of_prod,
    "Mul": _value_of_mul,
    "GatherV2": _value_of_gather,
    "ConcatV2": _value_of_parts,
    "Pack": _value_of_parts,
    "StridedSlice": _value_of_slice,
    "Cast": _value_of_first,
    "Identity": _value_of_first,
    "ExpandDims": _value_of_first,
    "Squeeze": _value_of_first,
}
