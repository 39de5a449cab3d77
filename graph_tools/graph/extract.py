# SPDX-License-Identifier: Apache-2.0
"""Extract a part of a graph to run it in TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from graph_tools.graph.attributes import attr_value
from graph_tools.graph.graph import Graph
from graph_tools.graph.node import Node


def extract(graph: Graph, names: Iterable[str], fed: Mapping[str, Any] | None = None, *, controls: bool = True) -> Any:
    """Return a GraphDef of some nodes and of all nodes that they need.

    Parameters
    ----------
    graph : Graph
        It is not changed.
    names : iterable of str
    fed : mapping of str to TensorFlow dtype, optional
        Nodes with one output that become placeholders; nodes that only they need are omitted.
    controls : bool
        Whether nodes still run after those that their control inputs name.
    """
    fed = fed or {}
    part = Graph()
    part.producer, part.library, part.op_defs = graph.producer, graph.library, graph.op_defs
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in part:
            continue
        node = graph[name]
        if name in fed:
            node = Node(name, "Placeholder", attrs={"dtype": attr_value(fed[name])})
        before = list(node.controls) if controls else []
        part.nodes[name] = Node(name, node.op, list(node.inputs), before, node.attrs)
        waiting.extend(source.node for source in node.inputs)
        waiting.extend(before)
    return part.to_graph_def()
