# SPDX-License-Identifier: Apache-2.0
"""Sizes of tensors as numbers and symbols: enough to prove that a reshape changes nothing.

The first size of a batch is unknown before a request, but it is the same in every tensor computed from that batch. A
symbol stands for such a size: equal symbols are equal numbers in every request.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, NamedTuple

from graph_tools.graph import Node, Output, attribute, constant, constant_list, first_column, skip, source
from graph_tools.model import Model


class Symbol(NamedTuple):
    """A number that is known only with a request.

    Attributes
    ----------
    kind : str
        `size` along an axis of a tensor, or `element` of a vector.
    of : Output
    at : int
    """

    kind: str
    of: Output
    at: int


Size = int | Symbol
Sizes = tuple[Size, ...]

_UNARY = {
    "AsString", "Bucketize", "Cast", "ClipByValue", "LogicalNot", "OnesLike", "Relu", "Sigmoid", "StaticRegexReplace",
    "StringLower", "StringStrip", "StringToHashBucket", "StringToHashBucketFast", "StringToHashBucketStrong",
    "StringToNumber", "StringUpper", "Tanh", "ZerosLike", "BiasAdd", "Identity", "Softmax",
}  # fmt: skip
_BROADCAST = {
    "Add", "AddV2", "BitwiseAnd", "BitwiseXor", "DivNoNan", "Equal", "FloorDiv", "FloorMod", "Greater", "GreaterEqual",
    "LeftShift", "Less", "LessEqual", "LogicalAnd", "LogicalOr", "Maximum", "Minimum", "Mul", "NotEqual", "RealDiv",
    "RightShift", "SelectV2", "StringJoin", "Sub",
}  # fmt: skip
_SEGMENTS = {"SparseSegmentMean", "SparseSegmentSum", "SparseSegmentSqrtN"}


class SizeFinder:
    """Finds sizes in a graph, which must not change meanwhile."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.graph = model.graph
        endpoints = [endpoint for each in model.signatures.values() for endpoint in each.inputs.values()]
        self._fed = {endpoint.tensor: endpoint.shape for endpoint in endpoints}
        self._known: dict[Output, Sizes | None] = {}

    def of(self, output: Output) -> Sizes | None:
        """Return the sizes of a tensor, or None if its rank is unknown."""
        output = skip(self.graph, output)
        if output not in self._known:
            self._known[output] = None
            self._known[output] = self._find(self.graph[output.node], output)
        return self._known[output]

    def rank(self, output: Output) -> int | None:
        """Return the number of axes of a tensor, or None."""
        sizes = self.of(output)
        return None if sizes is None else len(sizes)

    def is_same_shape(self, reshape: Node) -> bool:
        """Return whether a Reshape or SparseReshape keeps the shape of its input."""
        if reshape.op == "SparseReshape":
            before, target = self.vector(reshape.inputs[1]), self.vector(reshape.inputs[2])
        else:
            before, target = self.of(reshape.inputs[0]), self.vector(reshape.inputs[1])
        return before is not None and target is not None and resolve(before, target) == before

    def vector(self, output: Output) -> Sizes | None:
        """Return the elements of a vector or scalar of integers."""
        output = skip(self.graph, output)
        node = self.graph[output.node]
        found = self._elements(node, output)
        if found is None:
            sizes = self.of(output)
            if sizes is not None and len(sizes) == 1 and isinstance(sizes[0], int):
                found = tuple(Symbol("element", output, index) for index in range(sizes[0]))
        return found

    def same(self, first: Output, second: Output) -> bool:
        """Return whether two tensors have one shape in every request."""
        sizes = self.of(first)
        return sizes is not None and sizes == self.of(second)

    def _elements(self, node: Node, output: Output) -> Sizes | None:
        inputs = node.inputs
        array = constant(self.graph, output)
        if array is not None:
            small = array.ndim <= 1 and array.dtype.kind in "iu" and array.size <= 16
            return tuple(int(element) for element in array.ravel()) if small else None
        if node.op == "Shape":
            return self.of(inputs[0])
        if node.op in {"Cast", "Squeeze", "ExpandDims"}:
            found = self.vector(inputs[0])
            return found if node.op == "Cast" or (found is not None and len(found) == 1) else None
        if node.op in {"Pack", "ConcatV2"}:
            parts = [self.vector(part) for part in (inputs if node.op == "Pack" else inputs[:-1])]
            return None if any(part is None for part in parts) else tuple(s for part in parts for s in part or ())
        if node.op in {"Slice", "StridedSlice"}:
            return self._slice(node)
        if node.op in {"GatherV2", "Gather"}:
            found, picked = self.vector(inputs[0]), constant_list(self.graph, inputs[1])
            return None if found is None or picked is None else tuple(found[index] for index in picked)
        if node.op == "Fill":
            length, value = self.vector(inputs[0]), self.vector(inputs[1])
            count = length[0] if length is not None and len(length) == 1 else None
            return value * count if isinstance(count, int) and count <= 16 and value is not None else None
        if node.op == "Prod":
            found = self.vector(inputs[0])
            kept = [size for size in found or () if size != 1]
            return None if found is None else (Symbol("element", output, 0),) if len(kept) > 1 else tuple(kept) or (1,)
        if node.op == "StringSplitV2" and output.port == 2:
            strings = self.of(inputs[0])
            return None if strings is None else (*(strings or (1,)), Symbol("element", output, 1))
        if node.op == "SparseReshape" and output.port == 1:
            before, target = self.vector(inputs[1]), self.vector(inputs[2])
            return None if before is None or target is None else resolve(before, target)
        return None

    def _slice(self, node: Node) -> Sizes | None:
        found = self.vector(node.inputs[0])
        begin, end = constant_list(self.graph, node.inputs[1]), constant_list(self.graph, node.inputs[2])
        if found is None or begin is None or end is None or len(begin) != 1:
            return None
        if node.op == "Slice":
            return found[begin[0] :] if end[0] < 0 else found[begin[0] : begin[0] + end[0]]
        if constant_list(self.graph, node.inputs[3]) != [1] or attribute(node, "new_axis_mask", 0):
            return None
        if attribute(node, "shrink_axis_mask", 0):
            return (found[begin[0]],)
        start = None if attribute(node, "begin_mask", 0) else begin[0]
        return found[start : None if attribute(node, "end_mask", 0) else end[0]]

    def _find(self, node: Node, output: Output) -> Sizes | None:
        inputs = node.inputs
        if node.op == "VarHandleOp" and node.name in self.model.variables:
            return tuple(self.model.variables[node.name].shape)
        if output in self._fed or node.op in {"Placeholder", "PlaceholderWithDefault", "VarHandleOp"}:
            return _known(self._fed.get(output, attribute(node, "shape")), output)
        if node.op == "Const":
            array = constant(self.graph, output)
            return None if array is None else tuple(array.shape)
        if node.op in {"ReadVariableOp", *_UNARY}:
            return self.of(inputs[0])
        if node.op == "Bitcast":
            return self.of(inputs[0]) if attribute(node, "T").size == attribute(node, "type").size else None
        if node.op == "LookupTableFindV2":
            plain = self.graph[inputs[0].node].op in {"HashTableV2", "MutableHashTableV2"}
            return self.of(inputs[1]) if plain else None
        if node.op in {"LookupTableSizeV2", "Size"}:
            return ()
        if node.op in _BROADCAST:
            return self._broadcast(inputs)
        if node.op == "Select":
            return self.of(inputs[1]) or self.of(inputs[2])
        if node.op == "Fill":
            return self.vector(inputs[0])
        if node.op == "Reshape":
            before, target = self.of(inputs[0]), self.vector(inputs[1])
            return None if target is None else resolve(before, target, output)
        if node.op in {"ExpandDims", "Squeeze"}:
            return self._one_axis(node)
        if node.op in {"ResourceGather", "GatherV2", "SparseLookup", "GatherNd"}:
            return self._gather(node)
        if node.op == "MatMul":
            left, right = self.of(inputs[0]), self.of(inputs[1])
            if not left or not right or attribute(node, "transpose_a", False):
                return None
            return (left[0], right[0 if attribute(node, "transpose_b", False) else 1])
        if node.op in {"RecCollapseRows", "RecExpandRows"}:
            return self._rows_apart(node, output)
        return self._sparse(node, output)

    def _rows_apart(self, node: Node, output: Output) -> Sizes | None:
        """Return the sizes of ops for a user whose rows may be fewer than the items' rows."""
        if node.op == "RecCollapseRows":  # all its outputs have the same number of rows
            given, rows = self.of(node.inputs[output.port]), (Symbol("size", node.output(), 0),)
            return (*rows, *given[1:]) if given else None
        value, like = (self.of(source) for source in node.inputs)
        return (like[0], *value[1:]) if value and like else None

    def _sparse(self, node: Node, output: Output) -> Sizes | None:
        """Return the sizes of the results of ops on sparse tensors, and of some other ops."""
        unknown, inputs = Symbol("size", output, 0), node.inputs
        if node.op == "Unpack":
            whole, axis = self.of(inputs[0]), attribute(node, "axis", 0)
            return None if whole is None else tuple(size for i, size in enumerate(whole) if i != axis % len(whole))
        if node.op == "StringSplitV2":
            words = Symbol("size", node.output(1), 0)
            return ((words, 2), (words,), (2,))[output.port]
        if node.op == "RaggedTensorToSparse":
            rank = self.rank(inputs[-1])
            if rank is None:
                return None
            axes = attribute(node, "RAGGED_RANK") + rank
            return ((unknown, axes), (unknown,), (axes,))[output.port]
        if node.op == "StridedSlice":
            matrix = first_column(self.graph, output)
            rows = self.of(matrix) if matrix is not None else None
            return None if rows is None else rows[:1]
        if node.op == "Where":
            rank = self.rank(inputs[0])
            return None if rank is None else (unknown, rank)
        if node.op == "Unique":
            return (unknown,) if output.port == 0 else self.of(inputs[0])
        if node.op == "SparseReshape":
            target, rows = self.vector(inputs[2]), self.of(inputs[0])
            if target is None or rows is None:
                return None
            return (rows[0], len(target)) if output.port == 0 else (len(target),)
        if node.op == "SparseFillEmptyRows":
            shape = self.vector(inputs[2])
            return ((unknown, 2), (unknown,), shape[:1] if shape else (unknown,), self.of(inputs[1]))[output.port]
        if node.op.removesuffix("WithNumSegments") in _SEGMENTS:
            row = self.of(inputs[0])
            count = self.vector(inputs[3]) if node.op.endswith("Segments") else self._filled_rows(node, unknown)
            return None if row is None or count is None else (count[0], *row[1:])
        if node.op == "ParseExampleV2":
            sparse = attribute(node, "num_sparse", 0)
            kind, index = divmod(output.port, sparse) if sparse else (3, output.port)
            if kind < 3:
                return ((unknown, 2), (unknown,), (2,))[kind]
            shapes = node.attrs["dense_shapes"].list.shape
            index, rows = output.port - 3 * sparse, self.of(inputs[0])
            if index < len(shapes) and rows is not None and not shapes[index].unknown_rank:
                row = _known([None if d.size < 0 else d.size for d in shapes[index].dim], output, 1)
                return (*rows, *(row or ()))
        return None

    def _filled_rows(self, node: Node, unknown: Size) -> Sizes:
        """Return the number of rows of an op on segments: all rows, if each was filled."""
        matrix = first_column(self.graph, node.inputs[2])
        fill = source(self.graph, matrix, "SparseFillEmptyRows") if matrix is not None else None
        return (self.vector(fill.inputs[2]) or (unknown,))[:1] if fill is not None else (unknown,)

    def _broadcast(self, inputs: list[Output]) -> Sizes | None:
        result: Sizes = ()
        for operand in inputs:
            sizes = self.of(operand)
            if sizes is None:
                return None
            length = max(len(result), len(sizes))
            left, right = (1,) * (length - len(result)) + result, (1,) * (length - len(sizes)) + sizes
            if any(a != b and a != 1 and b != 1 for a, b in zip(left, right, strict=True)):
                return None
            result = tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))
        return result

    def _one_axis(self, node: Node) -> Sizes | None:
        before = self.of(node.inputs[0])
        if before is None:
            return None
        if node.op == "ExpandDims":
            axis = constant_list(self.graph, node.inputs[1])
            if axis is None:
                return None
            at = axis[0] if axis[0] >= 0 else len(before) + 1 + axis[0]
            return (*before[:at], 1, *before[at:])
        axes = {axis % len(before) for axis in attribute(node, "squeeze_dims", []) if before}
        if not axes and any(isinstance(size, Symbol) for size in before):
            return None
        return tuple(size for i, size in enumerate(before) if not (i in axes or (not axes and size == 1)))

    def _gather(self, node: Node) -> Sizes | None:
        inputs = node.inputs
        if node.op == "SparseLookup":
            keys = self.of(inputs[0])
            return None if keys is None else (*keys, attribute(node, "dim"))
        table, picked = self.of(inputs[0]), self.of(inputs[1])
        if table is None or picked is None or attribute(node, "batch_dims", 0):
            return None
        if node.op == "GatherNd":
            return (*picked[:-1], *table[picked[-1] :]) if picked and isinstance(picked[-1], int) else None
        if node.op == "GatherV2" and constant_list(self.graph, inputs[2]) != [0]:
            return None
        return (*picked, *table[1:])


def resolve(before: Sizes | None, target: Sizes, output: Output | None = None) -> Sizes | None:
    """Return the sizes of a reshape from `before` to `target`, with -1 in it replaced by the remaining size."""
    if -1 not in target:
        return target
    at = target.index(-1)
    if before is None:
        rest: Counter[Size] | None = None
    else:
        rest = Counter(size for size in before if size != 1)
        others = Counter(size for size in target if size not in (-1, 1))
        rest = rest - others if not others - rest else None
    left = None if rest is None else list(rest.elements())
    numbers = [size for size in left or () if isinstance(size, int)]
    if left is not None and len(numbers) == len(left):
        size: Size = math.prod(numbers)
    elif left is not None and len(left) == 1:
        size = left[0]
    elif output is not None:
        size = Symbol("size", output, at)
    else:
        return None
    return (*target[:at], size, *target[at + 1 :])


def _known(shape: Any, output: Output, first: int = 0) -> Sizes | None:
    if shape is None:
        return None
    return tuple(Symbol("size", output, first + i) if size is None else size for i, size in enumerate(shape))
