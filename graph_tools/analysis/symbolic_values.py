# SPDX-License-Identifier: Apache-2.0
"""How each op computes a small integer tensor of sizes, such as the target of a reshape."""

from __future__ import annotations

from graph_tools.analysis.symbolic_sizes import Rule, SizeFacts, Sizes, product
from graph_tools.graph import Node, attribute


def _value_of_shape(shapes: SizeFacts, node: Node) -> Sizes | None:
    return shapes.of(node.inputs[0])


def _value_of_prod(shapes: SizeFacts, node: Node) -> Sizes | None:
    found = shapes.value(node.inputs[0])
    return None if found is None or shapes.numbers(node.inputs[1]) not in ([0], [-1]) else (product(found),)


def _value_of_mul(shapes: SizeFacts, node: Node) -> Sizes | None:
    a, b = (shapes.value(source) for source in node.inputs)
    return (product([a[0], b[0]]),) if a and b and len(a) == len(b) == 1 else None


def _value_of_gather(shapes: SizeFacts, node: Node) -> Sizes | None:
    found, indices = shapes.value(node.inputs[0]), shapes.numbers(node.inputs[1])
    if found is None or indices is None or any(not -len(found) <= index < len(found) for index in indices):
        return None
    return tuple(found[index] for index in indices)


def _value_of_parts(shapes: SizeFacts, node: Node) -> Sizes | None:
    parts = [shapes.value(source) for source in (node.inputs[:-1] if node.op == "ConcatV2" else node.inputs)]
    return None if any(part is None for part in parts) else tuple(size for part in parts for size in part or ())


def _value_of_slice(shapes: SizeFacts, node: Node) -> Sizes | None:
    found = shapes.value(node.inputs[0])
    begin, end, step = (shapes.numbers(source) for source in node.inputs[1:4])
    masks = ("begin_mask", "end_mask", "shrink_axis_mask", "ellipsis_mask", "new_axis_mask")
    begin_open, end_open, shrink, ellipsis, new_axis = (attribute(node, key, 0) for key in masks)
    if found is None or not begin or not end or not step or len(begin) != 1 or ellipsis or new_axis:
        return None
    if shrink:
        return (found[begin[0]],) if -len(found) <= begin[0] < len(found) else None
    return found[slice(None if begin_open else begin[0], None if end_open else end[0], step[0])]


def _value_of_first(shapes: SizeFacts, node: Node) -> Sizes | None:
    return shapes.value(node.inputs[0])


VALUE_RULES: dict[str, Rule] = {
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


def holds_integers(node: Node) -> bool:
    """Return whether the result of a node is an integer tensor."""
    if node.op == "Shape":
        return True
    dtype = next((attribute(node, name) for name in ("DstT", "Tparams", "T") if name in node.attrs), None)
    return dtype is None or bool(dtype.is_integer)
