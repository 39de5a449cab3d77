# SPDX-License-Identifier: Apache-2.0
"""Find the effects of nodes beyond their outputs, including those of functions of control flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graph_tools.graph.graph import Graph
from graph_tools.graph.node import Node
from graph_tools.graph.op_defs import writes

CONTROL_FLOW = {
    "Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "RefEnter", "Exit", "RefExit", "NextIteration",
    "RefNextIteration", "LoopCond", "_SwitchN",
}  # fmt: skip
_BRANCHING = {"If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase", "For"}


def functions_of(attrs: Mapping[str, Any]) -> list[str]:
    """Return the names of the functions that a node's attributes refer to."""
    found: list[str] = []
    for value in attrs.values():
        kind = value.WhichOneof("value")
        if kind == "func":
            found.append(value.func.name)
        elif kind == "list":
            found.extend(function.name for function in value.list.func)
    return found


def has_effect(graph: Graph, node: Node, effect: Callable[[Node], bool] = writes) -> bool:
    """Return whether a node, or one in the functions that it may run, has an effect: writes, prints, asserts."""
    return _has_effect(graph, node, effect, frozenset())


def _has_effect(graph: Graph, node: Node, effect: Callable[[Node], bool], chain: frozenset[str]) -> bool:
    names = functions_of(node.attrs)
    if node.op in graph.library:
        names.append(node.op)
    elif node.op not in _BRANCHING and not node.op.endswith("PartitionedCall"):
        return effect(node)
    if any(name not in graph.library for name in names):
        return True
    bodies = [
        Node(definition.name, definition.op, attrs=dict(definition.attr))
        for name in names
        if name not in chain
        for definition in graph.library[name].node_def
    ]
    return any(_has_effect(graph, body, effect, chain | set(names)) for body in bodies)
