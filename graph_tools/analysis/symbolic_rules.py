# SPDX-License-Identifier: Apache-2.0
"""How each op computes the sizes of its first output from those of its inputs."""

from __future__ import annotations

from graph_tools.analysis.symbolic_sizes import ONE, Rule, Size, SizeFacts, Sizes, product, quotient
from graph_tools.graph import Node, attribute

_SAME_AS_FIRST = {
    "Abs", "BiasAdd", "Cast", "Elu", "Erf", "Erfc", "Exp", "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3",
    "Identity", "LeakyRelu", "Log", "LogSoftmax", "Neg", "OnesLike", "Relu", "Relu6", "Rsqrt", "Selu", "Sigmoid",
    "Snapshot", "Softmax", "Softplus", "Sqrt", "Square", "StopGradient", "Tanh", "ZerosLike",
}  # fmt: skip
_BROADCASTS = {
    "Add", "AddV2", "AddN", "Div", "DivNoNan", "Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd",
    "LogicalOr", "Maximum", "Minimum", "Mul", "NotEqual", "Pow", "RealDiv", "SelectV2", "SquaredDifference", "Sub",
}  # fmt: skip
_TRANSPOSES = (("transpose_a", "adj_x"), ("transpose_b", "adj_y"))
_SLICE_MASKS = ("begin", "end", "new_axis", "ellipsis")


def _broadcast(shapes: list[Sizes]) -> Sizes | None:
    rank = max(map(len, shapes))
    padded = [(ONE,) * (rank - len(shape)) + shape for shape in shapes]
    found: list[Size] = []
    for sizes in zip(*padded, strict=True):
        others = {size for size in sizes if size != ONE}
        if len(others) > 1:
            return None
        found.append(others.pop() if others else ONE)
    return tuple(found)


def _inputs(shapes: SizeFacts, node: Node) -> list[Sizes] | None:
    found = [shapes.of(source) for source in node.inputs]
    known = [sizes for sizes in found if sizes is not None]
    return known if len(known) == len(found) else None


def _elementwise(shapes: SizeFacts, node: Node) -> Sizes | None:
    found = _inputs(shapes, node)
    return _broadcast(found) if found else None


def _first(shapes: SizeFacts, node: Node) -> Sizes | None:
    return shapes.of(node.inputs[0])


def _expand_rows(shapes: SizeFacts, node: Node) -> Sizes | None:
    value, like = (shapes.of(source) for source in node.inputs)
    return (like[0], *value[1:]) if value and like else None


def _mat_mul(shapes: SizeFacts, node: Node) -> Sizes | None:
    found = _inputs(shapes, node)
    if found is None or min(map(len, found[:2])) < 2:
        return None
    a, b = found[:2]
    turned = [any(attribute(node, name, False) for name in names) for names in _TRANSPOSES]
    rows, columns = a[-1 if turned[0] else -2], b[-2 if turned[1] else -1]
    lead = _broadcast([a[:-2], b[:-2]])
    return None if lead is None else (*lead, rows, columns)


def _einsum(shapes: SizeFacts, node: Node) -> Sizes | None:
    equation = attribute(node, "equation", b"").decode().replace(" ", "")
    left, arrow, result = equation.partition("->")
    operands, found = left.split(","), _inputs(shapes, node)
    if not arrow or "." in equation or found is None:
        return None
    if any(len(letters) != len(sizes) for letters, sizes in zip(operands, found, strict=True)):
        return None
    sizes = {letter: size for pair in zip(operands, found, strict=True) for letter, size in zip(*pair, strict=True)}
    return tuple(sizes[letter] for letter in result) if set(result) <= set(sizes) else None


def _reshape(shapes: SizeFacts, node: Node) -> Sizes | None:
    before, target = shapes.of(node.inputs[0]), shapes.value(node.inputs[1])
    if target is None:
        return None
    if Size(-1) not in target:
        return target
    if before is None or target.count(Size(-1)) > 1:
        return None
    rest = quotient(product(before), product(size for size in target if size != Size(-1)))
    return None if rest is None else tuple(rest if size == Size(-1) else size for size in target)


def _expand(shapes: SizeFacts, node: Node) -> Sizes | None:
    before, axis = shapes.of(node.inputs[0]), shapes.numbers(node.inputs[1])
    if before is None or axis is None or len(axis) != 1:
        return None
    at = axis[0] if axis[0] >= 0 else axis[0] + len(before) + 1
    return (*before[:at], ONE, *before[at:])


def _squeeze(shapes: SizeFacts, node: Node) -> Sizes | None:
    before, axes = shapes.of(node.inputs[0]), attribute(node, "squeeze_dims", [])
    if before is None or not axes:
        return None
    gone = {axis % len(before) for axis in axes}
    return tuple(size for axis, size in enumerate(before) if axis not in gone)


def _concat(shapes: SizeFacts, node: Node) -> Sizes | None:
    axis = shapes.numbers(node.inputs[-1])
    found = [shapes.of(source) for source in node.inputs[:-1]]
    known = [sizes for sizes in found if sizes]
    if axis is None or len(axis) != 1 or len(known) != len(found) or len(set(map(len, known))) != 1:
        return None
    at = axis[0] % len(known[0])
    sizes = [part[at].known for part in known]
    along = Size(sum(size or 0 for size in sizes)) if None not in sizes else Size(1, ((node.name, 0, at),))
    return (*known[0][:at], along, *known[0][at + 1 :])


def _pack(shapes: SizeFacts, node: Node) -> Sizes | None:
    before = shapes.of(node.inputs[0])
    if before is None:
        return None
    at = attribute(node, "axis", 0)
    at = at if at >= 0 else at + len(before) + 1
    return (*before[:at], Size(len(node.inputs)), *before[at:])


def _tile(shapes: SizeFacts, node: Node) -> Sizes | None:
    before, times = shapes.of(node.inputs[0]), shapes.value(node.inputs[1])
    if before is None or times is None or len(before) != len(times):
        return None
    return tuple(product(both) for both in zip(before, times, strict=True))


def _split(shapes: SizeFacts, node: Node) -> Sizes | None:
    axis, before = shapes.numbers(node.inputs[0]), shapes.of(node.inputs[1])
    if before is None or axis is None or len(axis) != 1:
        return None
    at, parts = axis[0] % len(before), Size(attribute(node, "num_split", 1))
    part = quotient(before[at], parts)
    return None if part is None else (*before[:at], part, *before[at + 1 :])


def _transpose(shapes: SizeFacts, node: Node) -> Sizes | None:
    before, order = shapes.of(node.inputs[0]), shapes.numbers(node.inputs[1])
    if before is None or order is None or len(order) != len(before):
        return None
    return tuple(before[axis] for axis in order)


def _reduce(shapes: SizeFacts, node: Node) -> Sizes | None:
    before, axes = shapes.of(node.inputs[0]), shapes.numbers(node.inputs[1])
    if not before or axes is None:
        return None
    gone = {axis % len(before) for axis in axes}
    if attribute(node, "keep_dims", False):
        return tuple(ONE if axis in gone else size for axis, size in enumerate(before))
    return tuple(size for axis, size in enumerate(before) if axis not in gone)


def _gather(shapes: SizeFacts, node: Node) -> Sizes | None:
    """Return the sizes of the rows that indices select from a table."""
    if attribute(node, "batch_dims", 0):
        return None
    if node.op == "GatherV2" and shapes.numbers(node.inputs[2]) != [0]:
        return None
    rows, indices = shapes.shape_of(node.output()), shapes.of(node.inputs[1])
    if rows is None or indices is None or len(rows) < len(indices) or None in rows[len(indices) :]:
        return None
    return (*indices, *(Size(row or 0) for row in rows[len(indices) :]))


def _strided_slice(shapes: SizeFacts, node: Node) -> Sizes | None:
    """Follow `x[..., None]` and similar slices, which only add dimensions."""
    sizes, steps = shapes.of(node.inputs[0]), shapes.numbers(node.inputs[3])
    begin, end, new, ellipsis = (attribute(node, f"{name}_mask", 0) for name in _SLICE_MASKS)
    if sizes is None or steps is None or attribute(node, "shrink_axis_mask", 0):
        return None
    found: list[Size] = []
    taken, rest = 0, len(sizes) - sum(not (new | ellipsis) >> i & 1 for i in range(len(steps)))
    for i, step in enumerate(steps):
        if ellipsis >> i & 1:
            found += sizes[taken : taken + rest]
            taken += rest
        elif new >> i & 1:
            found.append(ONE)
        elif step == 1 and begin & end & 1 << i:
            found.append(sizes[taken])
            taken += 1
        else:
            return None
    return (*found, *sizes[taken:])


SIZE_RULES: dict[str, Rule] = {
    **dict.fromkeys(_SAME_AS_FIRST, _first),
    **dict.fromkeys(_BROADCASTS, _elementwise),
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _mat_mul),
    **dict.fromkeys(("Sum", "Mean", "Max", "Min", "Prod", "All", "Any"), _reduce),
    **dict.fromkeys(("GatherV2", "ResourceGather", "Gather"), _gather),
    "Einsum": _einsum,
    "RecExpandRows": _expand_rows,
    "Reshape": _reshape,
    "ExpandDims": _expand,
    "Squeeze": _squeeze,
    "ConcatV2": _concat,
    "Pack": _pack,
    "Tile": _tile,
    "Split": _split,
    "StridedSlice": _strided_slice,
    "Transpose": _transpose,
}
