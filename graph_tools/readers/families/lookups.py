# SPDX-License-Identifier: Apache-2.0
"""What the families share: which lookups are served, whose handle they use, and what takes their place."""

from __future__ import annotations

from graph_tools.graph import Graph, Node, Output
from graph_tools.model import Model
from graph_tools.tables.lookup import become_lookup
from graph_tools.tables.table import SparseTable

_PASSES_ON = {"Identity", "RefIdentity", "Switch", "RefSwitch", "Enter", "RefEnter", "Snapshot"}


def served(model: Model, ops: set[str]) -> list[Node]:
    """List the nodes of some ops that an output of a signature needs."""
    needed = model.graph.ancestors(model.outputs())
    return [node for node in model.graph.of(*ops) if node.name in needed]


def handle_node(graph: Graph, output: Output) -> Node:
    """Return the node that makes a handle, through nodes that pass it on."""
    node = graph.source(output)
    while node.op in _PASSES_ON:
        node = graph.input(node, 0)
    return node


def replace_by_lookup(model: Model, node: Node, table: SparseTable, keys: Output, default: Output | None) -> None:
    """Turn a system's own lookup into a SparseLookup of the same name, whose only output is the rows."""
    become_lookup(model.graph, node, table.name, keys, table.key_dtype, table.dim, table.dtype, default)
