# SPDX-License-Identifier: Apache-2.0
"""The results of a loop's body as terms of its arguments, in one form for all ways to write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graph_tools.graph import PASS_THROUGH

#: A number, an argument, or an operation on terms; equal terms are equal tuples.
#:
#: ("arg", i); ("const", numbers, shape); ("item", list, index): an element of a list of tensors;
#: ("set", list, index, value); ("columns", i, row, begin, end): columns of an argument, of one row of it or (None) all;
#: ("dot", x, i, begin, end): x times columns of an argument; ("slice", x, begin, end): columns;
#: ("sum", terms) and ("product", terms), flat and in a canonical order; ("-", a, b); ("select", c, a, b);
#: (op, terms) for a function of one term; ("?", node, op) for an unknown operation.
Term = tuple[Any, ...]

#: Returns the shape of an argument, or None if it is not known.
ShapeOfArgument = Callable[[int], Sequence[int | None] | None]

_THROUGH = PASS_THROUGH | {"EnsureShape", "ReadVariableOp"}
_SUMS = {"Add", "AddV2", "BiasAdd"}
_UNARY = {
    "Elu", "Erf", "Exp", "LeakyRelu", "LogicalNot", "Neg", "Relu", "Relu6", "Selu", "Sigmoid", "Softplus", "Softsign",
    "Tanh",
}  # fmt: skip
_MOST_NUMBERS = 16
_MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")


class Terms:
    """Reads a function of a graph's library.

    Attributes
    ----------
    returned : list of Term
        The terms that it returns, in order.
    """

    def __init__(self, function: Any, shape_of: ShapeOfArgument) -> None:
        self._nodes = {node.name: node for node in function.node_def}
        self._arguments = {argument.name: i for i, argument in enumerate(function.signature.input_arg)}
        self._shape_of = shape_of
        self._known: dict[str, Term] = {}
        self.returned = [self.of(function.ret[result.name]) for result in function.signature.output_arg]

    def of(self, text: str) -> Term:
        """Return the term of `argument`, `node:output:index` or `node:output`."""
        parts = text.split(":")
        if len(parts) == 1 and parts[0] in self._arguments:
            return ("arg", self._arguments[parts[0]])
        port = int(parts[2]) if len(parts) > 2 else 0
        key = f"{parts[0]}:{port}"
        if key not in self._known:
            self._known[key] = self._node(self._nodes[parts[0]], port)
        return self._known[key]

    def _node(self, node: Any, port: int) -> Term:
        unknown: Term = ("?", node.name, node.op)
        if node.op == "Const":
            return _constant(node) or unknown
        inputs = [self.of(text) for text in node.input if not text.startswith("^")]
        if node.op in _THROUGH:
            return inputs[0]
        if node.op in _SUMS:
            return _flat("sum", [self._as_row(source) for source in inputs])
        if node.op == "Mul":
            return _flat("product", inputs)
        if node.op == "Sub":
            return ("-", *inputs)
        if node.op in _UNARY:
            return (node.op, *inputs)
        if node.op in {"Select", "SelectV2"}:
            return ("select", *inputs)
        if node.op in {"Less", "LogicalAnd"}:
            return (node.op, *inputs)
        if node.op == "TensorListGetItem":
            return ("item", *inputs[:2])
        if node.op == "TensorListSetItem":
            return ("set", *inputs[:3])
        if node.op == "Tile":
            times = _numbers(inputs[1])
            return inputs[0] if times and times[0] == 1 else unknown
        if node.op == "MatMul" and not _attribute(node, "transpose_a").b and not _attribute(node, "transpose_b").b:
            return self._product(*inputs) or unknown
        return self._part(node, inputs, port) or unknown

    def _as_row(self, term: Term) -> Term:
        """Return an argument that is a vector as a row."""
        shape = self._shape_of(term[1]) if term[0] == "arg" else None
        return ("columns", term[1], None, 0, shape[0]) if shape is not None and len(shape) == 1 else term

    def _product(self, x: Term, weight: Term) -> Term | None:
        if weight[0] == "arg":
            shape = self._shape_of(weight[1])
            return ("dot", x, weight[1], 0, shape[1]) if shape is not None and len(shape) == 2 else None
        return ("dot", x, weight[1], *weight[3:]) if weight[0] == "columns" and weight[2] is None else None

    def _part(self, node: Any, inputs: list[Term], port: int) -> Term | None:
        if node.op == "Squeeze":
            return inputs[0] if inputs[0][0] == "columns" and inputs[0][2] is not None else None
        if node.op == "Unpack":
            return self._row(inputs[0], port, _attribute(node, "num").i) if _attribute(node, "axis").i == 0 else None
        if node.op == "Split":
            axis, count = _numbers(inputs[0]), _attribute(node, "num_split").i
            if axis == [0]:
                return self._row(inputs[1], port, count)
            width = self._width(inputs[1])
            if axis not in ([1], [-1]) or width is None or width % count:
                return None
            return self._columns(inputs[1], width // count * port, width // count * (port + 1))
        if node.op == "SplitV":
            sizes, axis, width = _numbers(inputs[1]), _numbers(inputs[2]), self._width(inputs[0])
            if sizes is None or axis not in ([1], [-1]) or width is None:
                return None
            sizes = [width - sum(sizes) - 1 if size < 0 else size for size in sizes]
            return self._columns(inputs[0], sum(sizes[:port]), sum(sizes[: port + 1]))
        return self._slice(node, inputs) if node.op == "StridedSlice" else None

    def _row(self, term: Term, row: int, count: int) -> Term | None:
        """Return one row of an argument that has `count` rows."""
        shape = self._shape_of(term[1]) if term[0] == "arg" else None
        if shape is None or len(shape) != 2 or shape[0] != count:
            return None
        return ("columns", term[1], row, 0, shape[1])

    def _slice(self, node: Any, inputs: list[Term]) -> Term | None:
        """Recognize `x[:, begin:end]`, and `x[row]` of an argument."""
        begin, end, step = (_numbers(source) for source in inputs[1:])
        masks = {mask: _attribute(node, f"{mask}_mask").i for mask in _MASKS}
        if begin is None or end is None or step is None or any(stride != 1 for stride in step):
            return None
        if masks["ellipsis"] or masks["new_axis"]:
            return None
        if (
            masks["shrink_axis"] == 1
            and inputs[0][0] == "arg"
            and (len(begin) == 1 or masks["begin"] & masks["end"] & 2)
        ):
            shape = self._shape_of(inputs[0][1])
            return self._row(inputs[0], begin[0], shape[0] or 0) if shape and 0 <= begin[0] < (shape[0] or 0) else None
        width = self._width(inputs[0])
        if masks["shrink_axis"] or len(begin) != 2 or width is None or not masks["begin"] & masks["end"] & 1:
            return None
        first = 0 if masks["begin"] & 2 else begin[1]
        last = width if masks["end"] & 2 else end[1]
        first, last = (bound + width if bound < 0 else bound for bound in (first, last))
        return self._columns(inputs[0], first, last) if 0 <= first < last <= width else None

    def _width(self, term: Term) -> int | None:
        """Return the number of columns."""
        if term[0] == "arg":
            shape = self._shape_of(term[1])
            return shape[1] if shape is not None and len(shape) == 2 else None
        if term[0] in {"dot", "columns", "slice"}:
            return int(term[-1] - term[-2])
        if term[0] in {"sum", "product"}:
            return max((width for width in map(self._width, term[1]) if width is not None), default=None)
        return None

    def _columns(self, term: Term, begin: int, end: int) -> Term:
        """Return columns of a term, as columns of its operands if these have as many columns."""
        if term[0] == "arg":
            return ("columns", term[1], None, begin, end)
        if term[0] in {"dot", "columns"}:
            return (*term[:-2], term[-2] + begin, term[-2] + end)
        if term[0] == "sum" and all(self._width(operand) == self._width(term) for operand in term[1]):
            return _flat("sum", [self._columns(operand, begin, end) for operand in term[1]])
        return ("slice", term, begin, end)


def _flat(kind: str, terms: list[Term]) -> Term:
    """Return a sum or product; nested sums become one sum."""
    parts = [inner for term in terms for inner in (term[1] if term[0] == kind else (term,))]
    return (kind, tuple(sorted(parts, key=repr)))


def _constant(node: Any) -> Term | None:
    import tensorflow as tf

    value = tf.make_ndarray(node.attr["value"].tensor)
    if value.size > _MOST_NUMBERS or value.dtype.kind not in "fiu":
        return None
    return ("const", tuple(np.asarray(value).reshape(-1).tolist()), value.shape)


def _attribute(node: Any, name: str) -> Any:
    """Return an attribute, or its default if it is not written; reading it must not add it to the message."""
    from tensorflow.core.framework import attr_value_pb2

    return node.attr[name] if name in node.attr else attr_value_pb2.AttrValue()


def _numbers(term: Term) -> list[int] | None:
    return list(term[1]) if term[0] == "const" else None
