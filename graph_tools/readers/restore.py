# SPDX-License-Identifier: Apache-2.0
"""Find the checkpoint tensors from which variables and tables are restored, by following the restore op."""

from __future__ import annotations

from collections.abc import Iterator

from graph_tools.errors import UnreadableError
from graph_tools.graph import Graph, Node, Output, constant

_THROUGH = {"Identity", "Snapshot", "Reshape", "EnsureShape"}
_VARIABLE_WRITERS = {"AssignVariableOp": (0, 1), "Assign": (0, 1)}
_TABLE_WRITERS = {"LookupTableImportV2", "LookupTableImport", "InitializeTableV2"}


def restored_variables(graph: Graph, restore_op: str) -> Iterator[tuple[str, str, str]]:
    """Yield (handle node, tensor name, slice) of every variable that the restore op sets; slice "" means all."""
    for node in _restore_nodes(graph, restore_op):
        if node.op in _VARIABLE_WRITERS:
            found = restored_tensor(graph, node.inputs[1])
            if found:
                yield handle_of(graph, node.inputs[0]), *found


def initial_copies(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield (copy, original) of every variable whose initial value is another variable.

    `tf.saved_model.save` of a Keras 3 model restores such copies. Its signatures read the originals, which only
    Python's loader finds, through its object graph.
    """
    for node in graph.of("AssignVariableOp"):
        value = graph.input(node, 1)
        if value.op == "ReadVariableOp" and graph.input(node, 0).op == "VarHandleOp":
            original = handle_of(graph, value.inputs[0])
            if original != node.inputs[0].node:
                yield node.inputs[0].node, original


def restored_tables(graph: Graph, restore_op: str) -> Iterator[tuple[str, str, str | None]]:
    """Yield (handle node, tensor name of the keys, tensor name of the values) of native tables.

    The name of the values is None if they are 0, 1, 2, …: this package's writer fills tables of row numbers in this
    way.
    """
    for node in _restore_nodes(graph, restore_op):
        if node.op in _TABLE_WRITERS:
            keys, values = (restored_tensor(graph, source) for source in node.inputs[1:3])
            if keys and (values or _counts_up(graph, node.inputs[2])):
                yield handle_of(graph, node.inputs[0]), keys[0], values[0] if values else None


def _counts_up(graph: Graph, output: Output) -> bool:
    """Return whether a tensor is 0, 1, 2, …."""
    node = graph[output.node]
    if node.op != "Range":
        return False
    start, step = (constant(graph, node.inputs[place]) for place in (0, 2))
    return start is not None and step is not None and start.item() == 0 and step.item() == 1


def _restore_nodes(graph: Graph, restore_op: str) -> list[Node]:
    return [graph[name] for name in sorted(graph.ancestors([restore_op]))]


def handle_of(graph: Graph, output: Output) -> str:
    """Return the name of the node that creates a handle, following nodes that pass it on."""
    node = graph[output.node]
    while node.op in {"Identity", "RefIdentity"}:
        node = graph[node.inputs[0].node]
    return node.name


def restored_tensor(graph: Graph, output: Output) -> tuple[str, str] | None:
    """Return (tensor name, slice) of an output that RestoreV2 reads, else None."""
    node = graph[output.node]
    while node.op in _THROUGH:
        output = node.inputs[0]
        node = graph[output.node]
    if node.op == "RestoreV2":
        names, slices = constant(graph, node.inputs[1]), constant(graph, node.inputs[2])
        if names is None or slices is None:
            raise UnreadableError(f"node '{node.name}': names that are computed, expected constant ones")
        return names[output.port].decode(), slices[output.port].decode()
    if node.op == "Restore":
        name = constant(graph, node.inputs[1])
        return (name.item().decode(), "") if name is not None else None
    return None
