# SPDX-License-Identifier: Apache-2.0
"""Remove nodes together with the nodes that only they needed."""

from __future__ import annotations

from collections.abc import Iterable

from graph_tools.graph import CONTROL_FLOW, Node, has_effect
from graph_tools.model import Model


def sweep(
    model: Model, names: Iterable[str], why: str, inputs_why: str | None = None, *, give_way: bool = False
) -> int:
    """Remove those of the given nodes that nothing uses, then their inputs that nothing uses any more, and so on.

    The content that the model has for a handle is removed with the handle; otherwise a writer would store it.

    Parameters
    ----------
    model : Model
    names : iterable of str
        Names of nodes that are removed already are ignored.
    why : str
        The reason for the removal of these nodes.
    inputs_why : str, optional
        The reason for the removal of their inputs; None: the same reason.
    give_way : bool
        Whether to remove also a node for which others only wait; they then wait for the nodes for which it waited. It
        stays if it tells them that a branch runs, or if it has an effect.

    Returns
    -------
    int
        Number of nodes removed.
    """
    graph, roots, count = model.graph, model.roots(), 0
    waiting = [(name, why) for name in names]
    while waiting:
        name, reason = waiting.pop()
        if name not in graph or name in roots or (give_way and has_effect(graph, graph[name])):
            continue
        if graph.users(name) and not (give_way and _give_way(model, name)):
            continue
        waiting.extend((before, inputs_why or why) for before in before_of(graph[name]))
        graph.remove(name, reason)
        for held in (model.variables, model.hash_tables, model.embedding_tables, model.assets):
            held.pop(name, None)
        count += 1
    return count


def _give_way(model: Model, name: str) -> bool:
    """Replace a node in control inputs by the nodes for which it waits; return False if something needs the node."""
    graph, node = model.graph, model.graph[name]
    if any(source.node == name for user in graph.users(name) for source in user.inputs) or anchors_branch(model, name):
        return False
    effects = [source.node for source in node.inputs if has_effect(graph, graph[source.node])]
    graph.replace_control(name, [*node.controls, *effects])
    return True


def before_of(node: Node) -> list[str]:
    """Return the names of the nodes before a node, through data and control edges, each once."""
    return list(dict.fromkeys([*(source.node for source in node.inputs), *node.controls]))


def bypass_controls(model: Model, name: str) -> None:
    """Connect the nodes that run after a node to the nodes for which it waits itself."""
    model.graph.replace_control(name, before_of(model.graph[name]))


def anchors_branch(model: Model, name: str) -> bool:
    """Return whether others wait for a node because it tells that a branch runs, which its inputs do not tell."""
    graph = model.graph
    given = {graph[source.node].op for source in graph[name].inputs}
    return bool(given & CONTROL_FLOW) and any(name in user.controls for user in graph.users(name))
