# SPDX-License-Identifier: Apache-2.0
"""Recognize slices of a tensor."""

from __future__ import annotations

from graph_tools.graph.attributes import attribute
from graph_tools.graph.constants import constant_list
from graph_tools.graph.graph import Graph
from graph_tools.graph.node import Output
from graph_tools.graph.tracing import operand, skip


def first_column(graph: Graph, output: Output) -> Output | None:
    """Return the matrix whose column 0 an output is, also after a cast to another integer type."""
    node = graph[skip(graph, output).node]
    if node.op == "Cast":
        node = graph[operand(graph, node, 0).node]
    if node.op != "StridedSlice":
        return None
    begin, end, strides = (constant_list(graph, node.inputs[i]) for i in (1, 2, 3))
    masks = {key: attribute(node, f"{key}_mask", 0) for key in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    if begin is None or end is None or strides != [1, 1] or len(begin) != 2:
        return None
    rows = (masks["begin"] & 1 or begin[0] == 0) and masks["end"] & 1
    column = masks["shrink_axis"] == 2 and begin[1] == 0
    return node.inputs[0] if rows and column and not masks["ellipsis"] and not masks["new_axis"] else None
