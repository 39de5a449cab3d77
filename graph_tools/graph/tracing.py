# SPDX-License-Identifier: Apache-2.0
"""Follow outputs back through nodes that only pass them on."""

from __future__ import annotations

from graph_tools.graph.graph import Graph
from graph_tools.graph.node import Node, Output

PASS_THROUGH = {"Identity", "Snapshot", "StopGradient", "PreventGradient"}


def skip(graph: Graph, output: Output) -> Output:
    """Follow an output back through nodes that only pass it on."""
    node = graph[output.node]
    while node.op in PASS_THROUGH and not node.controls:
        output = node.inputs[0]
        node = graph[output.node]
    return output


def source(graph: Graph, output: Output, *ops: str) -> Node | None:
    """Return the node of an output, behind identities, if it has one of `ops`."""
    node = graph[skip(graph, output).node]
    return node if node.op in ops else None


def operand(graph: Graph, node: Node, index: int) -> Output:
    """Return input `index` of a node, behind identities."""
    return skip(graph, node.inputs[index])
