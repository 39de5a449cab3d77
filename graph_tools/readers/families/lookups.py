# SPDX-License-Identifier: Apache-2.0
"""Share code between the families: find served lookups and their handles, and replace lookups."""

from __future__ import annotations

from dataclasses import replace

from graph_tools.graph import Graph, Node, Output, attr_value
from graph_tools.graph.sparse_lookup import become_lookup
from graph_tools.model import Model
from graph_tools.model.tables import SparseTable

_PASSES_ON = {"Identity", "RefIdentity", "Switch", "RefSwitch", "Enter", "RefEnter", "Snapshot"}


def served_nodes(model: Model, ops: set[str]) -> list[Node]:
    """Return the nodes of some ops that an output of a signature needs."""
    needed = model.graph.ancestors(model.outputs())
    return [node for node in model.graph.of(*ops) if node.name in needed]


def handle_node(graph: Graph, output: Output) -> Node:
    """Return the node that creates a handle, following nodes that pass it on."""
    node = graph.source(output)
    while node.op in _PASSES_ON:
        node = graph.input(node, 0)
    return node


def replace_by_lookup(model: Model, node: Node, table: SparseTable, keys: Output, default: Output | None) -> None:
    """Convert a system's own lookup to a SparseLookup of the same name, whose only output is the rows."""
    become_lookup(model.graph, node, table.name, keys, table.key_dtype, table.dim, table.dtype, default)


def replace_output(model: Model, old: Output, new: Output) -> None:
    """Make every user of an output use another output.

    A node that a signature names becomes an Identity, so that the tensor keeps its name. If other outputs of the node
    are used, the signature names the new output instead.
    """
    graph = model.graph
    graph.replace(old, new)
    ends = [(signature.outputs, key) for signature in model.signatures.values() for key in signature.outputs]
    alone = old.port == 0 and not any(
        outputs[key].tensor.node == old.node and outputs[key].tensor.port for outputs, key in ends
    )
    alone = alone and all(source.node != old.node for user in graph.users(old.node) for source in user.inputs)
    for outputs, key in ends:
        if outputs[key].tensor != old:
            continue
        if not alone:
            outputs[key] = replace(outputs[key], tensor=new)
        elif graph[old.node].op != "Identity":
            node = graph[old.node]
            node.op, node.attrs = "Identity", {"T": attr_value(outputs[key].dtype)}
            graph.set_inputs(node, [new], [])
