# SPDX-License-Identifier: Apache-2.0
"""Remove nodes together with what only they needed."""

from __future__ import annotations

from collections.abc import Iterable

from graph_tools.graph import CONTROL_FLOW, Node, has_effect
from graph_tools.model import Model


def sweep(
    model: Model, names: Iterable[str], why: str, inputs_why: str | None = None, *, give_way: bool = False
) -> int:
    """Remove those of some nodes that nothing uses, then those of their inputs that nothing uses any more, and so on.

    What the model holds for a handle goes with the handle: a writer would store it otherwise.

    Parameters
    ----------
    model : Model
    names : iterable of str
        Names that are gone already are left out.
    why : str
        Why these go.
    inputs_why : str, optional
        Why what they needed goes; the same where None.
    give_way : bool
        A node that others only wait for gives way to what it waited for itself, unless it tells them that a branch
        runs; a node with an effect stays.

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
    """Let what only waits for a node wait for what the node waited for; False if something needs the node itself."""
    graph, node = model.graph, model.graph[name]
    if any(source.node == name for user in graph.users(name) for source in user.inputs) or anchors_branch(model, name):
        return False
    effects = [one.node for one in node.inputs if has_effect(graph, graph[one.node])]
    graph.replace_control(name, [*node.controls, *effects])
    return True


def before_of(node: Node) -> list[str]:
    """Return the names of the nodes that a node waits for, through data and control edges, each once."""
    return list(dict.fromkeys([*(source.node for source in node.inputs), *node.controls]))


def bypass_controls(model: Model, name: str) -> None:
    """Let whatever runs after a node run after what the node itself waits for."""
    model.graph.replace_control(name, before_of(model.graph[name]))


def anchors_branch(model: Model, name: str) -> bool:
    """Return whether others wait for a node to learn that a branch runs, which what the node is given does not tell."""
    graph = model.graph
    given = {graph[source.node].op for source in graph[name].inputs}
    return bool(given & CONTROL_FLOW) and any(name in user.controls for user in graph.users(name))
