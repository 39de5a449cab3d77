# SPDX-License-Identifier: Apache-2.0
"""Remove TrainableWrapper and ShadowVariable: variables of TFRA that a request writes and reads again."""

from __future__ import annotations

from graph_tools.errors import ConversionError
from graph_tools.graph import Node
from graph_tools.model import Model
from graph_tools.readers.families.lookups import handle_node, served_nodes

_WHY = "training wrapper of TFRA: what it holds during a request comes from the lookup itself"


def strip_wrappers(model: Model, lookups: set[str]) -> int:
    """Make readers of training wrappers use the values that are written to them, and return the number of variables.

    Before: `ids → AssignVariableOp(w-ids)`, `ReadVariableOp(w-ids) → find → AssignVariableOp(w)`, `ReadVariableOp(w) →
    rows`, ordered by control inputs.

    After: `ids → find → rows`.

    A wrapper is a variable that an output's graph assigns and that takes part in a lookup: its value comes from a
    lookup, or a lookup reads it. No behavior is lost, since concurrent requests would overwrite each other's ids.

    Raises
    ------
    ConversionError
        A wrapper is read at a point where the written value is not certain.
    """
    wrappers = _wrappers(model, [node.name for node in served_nodes(model, lookups)])
    for handle in wrappers:
        _forward(model, handle)
    return len(wrappers)


def _assigns(model: Model) -> dict[str, list[Node]]:
    """Return, by variable, the assignments that run when an output is computed."""
    by_handle: dict[str, list[Node]] = {}
    for node in served_nodes(model, {"AssignVariableOp"}):
        by_handle.setdefault(handle_node(model.graph, node.inputs[0]).name, []).append(node)
    return by_handle


def _wrappers(model: Model, found: list[str]) -> list[str]:
    """Return the variables that are written for a lookup or from one."""
    graph = model.graph
    before = graph.ancestors(found)
    wrappers = []
    for handle, assigns in _assigns(model).items():
        from_lookup = any(not graph.ancestors([assign.inputs[1].node]).isdisjoint(found) for assign in assigns)
        if from_lookup or handle in before:
            wrappers.append(handle)
    return sorted(wrappers)


def _forward(model: Model, handle: str) -> None:
    """Connect each read of a variable to the value assigned before it, and remove reads and assignments."""
    graph = model.graph
    needed = graph.ancestors(model.outputs())
    assigns = {node.name for node in _assigns(model)[handle]}
    uses = [user for user in graph.users(handle) if user.name in needed and user.name not in assigns]
    for use in uses:
        before = graph.ancestors([use.name]) & assigns
        if use.op != "ReadVariableOp" or len(before) != 1:
            raise ConversionError(
                f"variable '{handle}': used by '{use.name}' ({use.op}) after {len(before)} assignments in the same "
                f"request, expected a read after one, as TFRA's training wrappers have; export the model after "
                f"enable_inference_mode()"
            )
        graph.replace(use.output(), graph[before.pop()].inputs[1])
    for use in uses:
        graph.replace_control(use.name, [])
        graph.remove(use.name, _WHY)
    for assign in sorted(assigns):
        graph.replace_control(assign, [])
        graph.remove(assign, _WHY)
