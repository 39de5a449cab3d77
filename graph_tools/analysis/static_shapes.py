# SPDX-License-Identifier: Apache-2.0
"""Values that follow only from static shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_tools.analysis.shapes import ShapeOf
from graph_tools.graph import Graph, Node, Output, attribute, constant
from graph_tools.tensors import Array


def static_values(graph: Graph, shape_of: ShapeOf) -> dict[Output, Array]:
    """Find the outputs of Shape, ShapeN, Rank, Size, and slices of shapes, that are the same for every request."""
    found: dict[Output, Array] = {}
    for node in graph.of("Shape", "ShapeN", "Rank", "Size", "StridedSlice"):
        if node.controls:
            continue
        for port, value in enumerate(_values(graph, node, shape_of)):
            if value is not None and graph.uses(node.output(port)):
                found[node.output(port)] = value
    return found


def static_targets(graph: Graph, shape_of: ShapeOf) -> dict[str, Array]:
    """Find the reshapes that compute their target, although at most one size of their result is not known.

    The unknown size follows from the number of elements, so it becomes -1.
    """
    found: dict[str, Array] = {}
    for node in graph.of("Reshape"):
        shape = shape_of(node.output())
        if shape is None or shape.count(None) > 1 or 0 in shape or graph.source(node.inputs[1]).op == "Const":
            continue
        dtype = attribute(node, "Tshape")
        found[node.name] = np.array(
            [-1 if size is None else size for size in shape], np.int32 if dtype is None else dtype.as_numpy_dtype
        )
    return found


def _values(graph: Graph, node: Node, shape_of: ShapeOf) -> list[Array | None]:
    if node.op == "StridedSlice":
        return [_slice_of_shape(graph, node, shape_of)]
    dtype = _dtype(node)
    values: list[Array | None] = []
    for source in node.inputs:
        shape = shape_of(source)
        sizes = [size for size in shape or () if size is not None]
        complete = shape is not None and len(sizes) == len(shape)
        if node.op == "Rank":
            values.append(None if shape is None else np.array(len(shape), np.int32))
        elif not complete:
            values.append(None)
        elif node.op == "Size":
            values.append(np.array(int(np.prod(sizes, dtype=np.int64)), dtype))
        else:
            values.append(np.array(sizes, dtype))
    return values


def _slice_of_shape(graph: Graph, node: Node, shape_of: ShapeOf) -> Array | None:
    """Return sizes from a shape that may be known only in part: `Shape(x)[1:3]`, `Shape(x)[-1]`."""
    source = graph.input(node, 0)
    if source.op != "Shape" or source.controls:
        return None
    shape = shape_of(source.inputs[0])
    bounds = [constant(graph, source) for source in node.inputs[1:4]]
    if shape is None or any(bound is None or bound.size != 1 for bound in bounds):
        return None
    masks = ("begin_mask", "end_mask", "shrink_axis_mask", "ellipsis_mask", "new_axis_mask")
    begin_open, end_open, shrink, ellipsis, new_axis = (attribute(node, key, 0) for key in masks)
    if ellipsis or new_axis:
        return None
    begin, end, step = (int(bound.item()) for bound in bounds if bound is not None)
    if shrink:
        if not -len(shape) <= begin < len(shape):
            return None
        picked: Any = shape[begin]
        return None if picked is None else np.array(picked, _dtype(source))
    sizes = shape[slice(None if begin_open else begin, None if end_open else end, step)]
    return None if None in sizes else np.array(sizes, _dtype(source))


def _dtype(node: Node) -> Any:
    dtype = attribute(node, "out_type")
    return np.int32 if dtype is None else dtype.as_numpy_dtype
