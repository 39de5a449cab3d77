# SPDX-License-Identifier: Apache-2.0
"""How each op treats rows: a rule returns the first size of its outputs, or None if it may mix rows."""

from __future__ import annotations

from collections.abc import Callable

from graph_tools.analysis.row_facts import RowFacts, is_multiple
from graph_tools.analysis.symbolic_shapes import Size, product, quotient
from graph_tools.graph import Node, Output, attribute, constant

#: Ops that compute each element from the element at the same place, and from other inputs equal for all rows.
SAME_SHAPE = {
    "Abs", "Acos", "AsString", "Asin", "Atan", "Bucketize", "Cast", "Ceil", "CheckNumerics", "ClipByValue", "Cos",
    "Elu", "Erf", "Erfc", "Exp", "Expm1", "Floor", "Identity", "Inv", "Invert", "IsFinite", "IsInf", "IsNan",
    "LeakyRelu", "Log", "Log1p", "LogicalNot", "Neg", "OnesLike", "Reciprocal", "Relu", "Relu6", "Rint", "Round",
    "Rsqrt", "Selu", "Sigmoid", "Sign", "Sin", "Snapshot", "Softplus", "Softsign", "Sqrt", "Square",
    "StaticRegexFullMatch", "StaticRegexReplace", "StopGradient", "StringLength", "StringLower", "StringStrip",
    "StringToHashBucket", "StringToHashBucketFast", "StringToHashBucketStrong", "StringToNumber", "StringUpper",
    "Tan", "Tanh", "ZerosLike",
}  # fmt: skip
#: Ops whose operands may have different shapes: one operand may have one row if the other one has many.
BROADCASTS = {
    "Add", "AddV2", "Atan2", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "DivNoNan", "Equal", "FloorDiv",
    "FloorMod", "Greater", "GreaterEqual", "LeftShift", "Less", "LessEqual", "LogicalAnd", "LogicalOr", "Maximum",
    "Minimum", "Mod", "Mul", "MulNoNan", "NotEqual", "Pow", "RealDiv", "RightShift", "SelectV2", "SquaredDifference",
    "Sub", "TruncateDiv", "TruncateMod", "Xdivy", "Xlogy",
}  # fmt: skip
#: The same for products of matrices, over all dimensions but the last two.
BATCH_PRODUCTS = {"BatchMatMulV2", "BatchMatMulV3"}

_ONE = Size(1)
_FIRST_ONLY = {"AvgPool", "Conv2D", "DepthwiseConv2dNative", "MaxPool", "SparseLookup"}
#: Ops of libprocessor that have tensors of rows as inputs in addition to weights.
_FUSED = {
    "RecCrossNetwork", "RecDotInteraction", "RecFieldOuter", "RecFmInteraction", "RecHeadAttention", "RecProduct",
    "RecRecurrentLayer", "RecSequencePooling", "RecTargetAttention",
}  # fmt: skip
_REDUCTIONS = {"All", "Any", "EuclideanNorm", "Max", "Mean", "Min", "Prod", "Sum"}
_ALONG_AN_AXIS = {"ArgMax": 1, "ArgMin": 1, "Cumsum": 1, "Cumprod": 1, "ExpandDims": 1, "SplitV": 2}


def rows_of(rows: RowFacts, node: Node) -> Size | None:
    """Return the first size of a node's result, or None if it is not known to compute each row independently."""
    rule = _RULES.get(node.op)
    return rule(rows, node) if rule else None


def why_not(node: Node) -> str:
    """Return why rows cannot be followed through a node."""
    if node.op in _RULES:
        return f"'{node.name}' ({node.op}) may mix rows, expected an op on each row alone"
    return f"'{node.name}' ({node.op}) is not known to act on each row alone"


def _first(rows: RowFacts, node: Node) -> Size | None:
    return rows.first(node.inputs[0]) if all(map(rows.is_free, node.inputs[1:])) else None


def _second(rows: RowFacts, node: Node) -> Size | None:
    others = [*node.inputs[:1], *node.inputs[2:]]
    return rows.first(node.inputs[1]) if all(map(rows.is_free, others)) else None


def _fused(rows: RowFacts, node: Node) -> Size | None:
    found = {
        rows.first(source) if rows.has_rows(source) else None for source in node.inputs if not rows.is_free(source)
    }
    return found.pop() if len(found) == 1 else None


def _rank(rows: RowFacts, output: Output) -> int:
    return len(rows.of(output) or ())


def _elementwise(rows: RowFacts, node: Node) -> Size | None:
    rank = max(_rank(rows, source) for source in node.inputs)
    if not rank:
        return None
    found: set[Size | None] = set()
    for source in node.inputs:
        sizes = rows.of(source)
        if rows.is_free(source):
            if sizes is None or (len(sizes) == rank and sizes[0] != _ONE):
                return None
        elif rows.first(source) is not None or not _is_of_items(rows, source):
            found.add(rows.first(source) if sizes and len(sizes) == rank else None)
    return found.pop() if len(found) == 1 else None


def _is_of_items(rows: RowFacts, output: Output) -> bool:
    """Return whether a tensor has only rows of items, which are never collapsed, so that nothing must be proved."""
    return "user" not in rows.sides.get(output.node, ()) and bool(rows.of(output)) and not rows.is_free(output)


def _select(rows: RowFacts, node: Node) -> Size | None:
    """Follow the first Select of TensorFlow, whose condition may be a vector."""
    found = {rows.first(source) for source in node.inputs if not (source == node.inputs[0] and rows.is_free(source))}
    return found.pop() if len(found) == 1 else None


def _of_equal_rows(rows: RowFacts, parts: list[Output]) -> Size | None:
    """Return the rows of tensors for which TensorFlow demands equal numbers of rows."""
    found = {rows.first(part) for part in parts if rows.first(part) is not None or not _is_of_items(rows, part)}
    return found.pop() if len(found) == 1 else None


def _add_n(rows: RowFacts, node: Node) -> Size | None:
    return _of_equal_rows(rows, node.inputs)


def _concat(rows: RowFacts, node: Node) -> Size | None:
    return _of_equal_rows(rows, node.inputs[:-1]) if _axis(rows, node, len(node.inputs) - 1) else None


def _pack(rows: RowFacts, node: Node) -> Size | None:
    axis = attribute(node, "axis", 0) % (_rank(rows, node.inputs[0]) + 1)
    return _of_equal_rows(rows, node.inputs) if axis else None


def _axis(rows: RowFacts, node: Node, index: int, of: int = 0) -> int | None:
    """Return the axis that an input gives, 1 or more; None if it is the axis of rows, or not known."""
    axis, rank = rows.numbers(node.inputs[index]), _rank(rows, node.inputs[of])
    if not axis or len(axis) != 1 or not rank:
        return None
    return axis[0] % (rank + 1 if node.op == "ExpandDims" else rank) or None


def _along_an_axis(rows: RowFacts, node: Node) -> Size | None:
    return _first(rows, node) if _axis(rows, node, _ALONG_AN_AXIS[node.op]) else None


def _reduce(rows: RowFacts, node: Node) -> Size | None:
    axes, rank = rows.numbers(node.inputs[1]), _rank(rows, node.inputs[0])
    return _first(rows, node) if axes is not None and rank and all(axis % rank for axis in axes) else None


def _last_axis(rows: RowFacts, node: Node) -> Size | None:
    return _first(rows, node) if _rank(rows, node.inputs[0]) > 1 else None


def _mat_mul(rows: RowFacts, node: Node) -> Size | None:
    return None if attribute(node, "transpose_a", False) else _first(rows, node)


def _batch_mat_mul(rows: RowFacts, node: Node) -> Size | None:
    (a, b), ranks = node.inputs[:2], [_rank(rows, source) for source in node.inputs[:2]]
    if rows.is_free(b):
        fits = ranks[1] == 2 or ranks[1] < ranks[0] or (ranks[1] == ranks[0] and (rows.of(b) or ())[:1] == (_ONE,))
        rows_stay = ranks[0] > 2 or (ranks[0] == 2 and not attribute(node, "adj_x", False))
        return rows.first(a) if fits and rows_stay and ranks[1] else None
    if min(ranks[1], max(ranks)) < 3 or ranks[0] > ranks[1]:
        return None
    if rows.is_free(a):
        fits = ranks[0] < ranks[1] or (rows.of(a) or ())[:1] == (_ONE,)
        return rows.first(b) if fits else None
    return rows.first(a) if ranks[0] == ranks[1] and rows.first(a) == rows.first(b) else None


def _einsum(rows: RowFacts, node: Node) -> Size | None:
    """Follow the first letter of the result if it is the first letter of exactly the operands with rows."""
    operands, _, result = attribute(node, "equation", b"").decode().replace(" ", "").partition("->")
    letters = operands.split(",")
    if not result or "." in operands or len(letters) != len(node.inputs):
        return None
    found: set[Size | None] = set()
    for source, names in zip(node.inputs, letters, strict=True):
        if rows.is_free(source):
            found |= {None} if result[0] in names else set()
        else:
            found.add(rows.first(source) if names[:1] == result[0] and names.count(result[0]) == 1 else None)
    return found.pop() if len(found) == 1 else None


def _reshape(rows: RowFacts, node: Node) -> Size | None:
    """Follow a reshape: elements stay in order, so those of a row stay together if rows are counted by dimension 0."""
    before, after = rows.of(node.inputs[0]), rows.of(node.output())
    if rows.first(node.inputs[0]) is None or before is None or not after:
        return None
    found = quotient(product(before), product(after[1:]))
    return found if found is not None and is_multiple(found) else None


def _squeeze(rows: RowFacts, node: Node) -> Size | None:
    axes, rank = attribute(node, "squeeze_dims", []), _rank(rows, node.inputs[0])
    # Without axes, a single row would be squeezed too.
    return rows.first(node.inputs[0]) if axes and rank and all(axis % rank for axis in axes) else None


def _transpose(rows: RowFacts, node: Node) -> Size | None:
    order = rows.numbers(node.inputs[1])
    return _first(rows, node) if order and order[0] == 0 else None


def _gather(rows: RowFacts, node: Node) -> Size | None:
    values, indices = node.inputs[:2]
    batch = attribute(node, "batch_dims", 0)
    axis: list[int] | None = rows.numbers(node.inputs[2]) if node.op == "GatherV2" else [0]
    rank = _rank(rows, values)
    if axis is None or len(axis) != 1:
        return None
    if rows.is_free(values):
        return rows.first(indices) if axis[0] == 0 and not batch else None
    at = axis[0] % rank if rank else 0
    if rows.is_free(indices):
        return rows.first(values) if at and not batch else None
    return rows.first(values) if at and batch >= 1 and rows.first(values) == rows.first(indices) else None


def _gather_nd(rows: RowFacts, node: Node) -> Size | None:
    values, indices = node.inputs
    return rows.first(indices) if rows.is_free(values) and _rank(rows, indices) > 1 else None


def _one_hot(rows: RowFacts, node: Node) -> Size | None:
    return _first(rows, node) if attribute(node, "axis", -1) else None


def _strided_slice(rows: RowFacts, node: Node) -> Size | None:
    masks = ("begin_mask", "end_mask", "shrink_axis_mask", "ellipsis_mask", "new_axis_mask")
    begin_open, end_open, shrink, ellipsis, new_axis = (attribute(node, key, 0) & 1 for key in masks)
    if shrink or new_axis:
        return None
    if not ellipsis:
        begin, end, step = (rows.value(source) for source in node.inputs[1:4])
        starts = begin_open or (begin and begin[0] == Size(0))
        ends = end_open or (end and end[0] == rows.first(node.inputs[0]))
        if not starts or not ends or not step or step[0] != _ONE:
            return None
    return rows.first(node.inputs[0])


def _slice(rows: RowFacts, node: Node) -> Size | None:
    begin, size = rows.value(node.inputs[1]), rows.value(node.inputs[2])
    whole = begin and size and begin[0] == Size(0) and size[0] in (Size(-1), rows.first(node.inputs[0]))
    return rows.first(node.inputs[0]) if whole else None


def _split(rows: RowFacts, node: Node) -> Size | None:
    return _second(rows, node) if _axis(rows, node, 0, of=1) else None


def _unpack(rows: RowFacts, node: Node) -> Size | None:
    rank = _rank(rows, node.inputs[0])
    return _first(rows, node) if rank and attribute(node, "axis", 0) % rank else None


def _tile(rows: RowFacts, node: Node) -> Size | None:
    times, sizes = rows.value(node.inputs[1]), rows.of(node.inputs[0])
    if not times or not sizes:
        return None
    if rows.is_free(node.inputs[0]):
        return times[0] if sizes[0] == _ONE and is_multiple(times[0]) else None
    return rows.first(node.inputs[0]) if times[0] == _ONE else None


def _fill(rows: RowFacts, node: Node) -> Size | None:
    sizes = rows.value(node.inputs[0])
    filled = sizes and is_multiple(sizes[0]) and rows.is_free(node.inputs[1])
    return sizes[0] if sizes and filled else None


def _broadcast_to(rows: RowFacts, node: Node) -> Size | None:
    before, after = rows.of(node.inputs[0]), rows.value(node.inputs[1])
    if before is None or not after or not is_multiple(after[0]):
        return None
    if rows.is_free(node.inputs[0]):
        return after[0] if len(before) < len(after) or before[0] == _ONE else None
    return after[0] if rows.first(node.inputs[0]) == after[0] and len(before) == len(after) else None


def _pad(rows: RowFacts, node: Node) -> Size | None:
    padding = constant(rows.graph, node.inputs[1])
    return _first(rows, node) if padding is not None and padding.shape[:1] > (0,) and not padding[0].any() else None


def _bitcast(rows: RowFacts, node: Node) -> Size | None:
    return _first(rows, node) if attribute(node, "T").size == attribute(node, "type").size else None


def _batch_norm(rows: RowFacts, node: Node) -> Size | None:
    return None if attribute(node, "is_training", True) else _first(rows, node)


Rule = Callable[["RowFacts", Node], Size | None]

_RULES: dict[str, Rule] = {
    **dict.fromkeys(SAME_SHAPE | _FIRST_ONLY, _first),
    **dict.fromkeys(BROADCASTS | {"StringJoin"}, _elementwise),
    **dict.fromkeys(_FUSED, _fused),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(_ALONG_AN_AXIS, _along_an_axis),
    **dict.fromkeys(("BiasAdd", "LogSoftmax", "Softmax", "TopKV2"), _last_axis),
    **dict.fromkeys(BATCH_PRODUCTS | {"BatchMatMul"}, _batch_mat_mul),
    **dict.fromkeys(("Gather", "GatherV2", "ResourceGather"), _gather),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), _batch_norm),
    **dict.fromkeys(("Pad", "PadV2"), _pad),
    "AddN": _add_n,
    "Bitcast": _bitcast,
    "BroadcastTo": _broadcast_to,
    "ConcatV2": _concat,
    "Einsum": _einsum,
    "Fill": _fill,
    "GatherNd": _gather_nd,
    "LookupTableFindV2": _second,
    "MatMul": _mat_mul,
    "OneHot": _one_hot,
    "Pack": _pack,
    "Reshape": _reshape,
    "Select": _select,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "StridedSlice": _strided_slice,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unpack": _unpack,
}
