# SPDX-License-Identifier: Apache-2.0
"""Put an output in the place of another, and remove nodes that are left over."""

from __future__ import annotations

from collections.abc import Iterable

from graph_tools.graph import Output, attr_value, has_effect
from graph_tools.model import Model


def replace_output(model: Model, old: Output, new: Output, dtype: object, why: str) -> None:
    """Let users have `new` for `old`, and remove what only `old` needed.

    A node that a signature names becomes an Identity of `new`.
    """
    graph = model.graph
    graph.replace(old, new)
    if old.node in model.outputs():
        node = graph[old.node]
        before = [*(one.node for one in node.inputs), *node.controls]
        node.op, node.attrs = "Identity", {"T": attr_value(dtype)}
        graph.set_inputs(node, [new], [])
        sweep(model, before, why)
    else:
        sweep(model, [old.node], why)


def sweep(model: Model, names: Iterable[str], why: str) -> None:
    """Remove these nodes and what only they need, where nothing uses them any more.

    A node that only orders others gives way to what it waited for itself.
    """
    graph, roots = model.graph, model.roots()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in graph or name in roots or has_effect(graph, graph[name]):
            continue
        node = graph[name]
        if any(one.node == name for user in graph.users(name) for one in user.inputs):
            continue
        if graph.users(name):
            graph.replace_control(
                name, [*node.controls, *(i.node for i in node.inputs if has_effect(graph, graph[i.node]))]
            )
        waiting += [*(one.node for one in node.inputs), *node.controls]
        graph.remove(name, why)
