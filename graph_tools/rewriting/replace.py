# SPDX-License-Identifier: Apache-2.0
"""Replace an output by another one."""

from __future__ import annotations

from graph_tools.graph import Output, attr_value
from graph_tools.model import Model
from graph_tools.rewriting.sweep import sweep


def replace_output(model: Model, old: Output, new: Output, dtype: object, why: str) -> None:
    """Connect the users of `old` to `new`, and remove the nodes that only `old` needed.

    A node that a signature names becomes an Identity of `new`.
    """
    graph = model.graph
    graph.replace(old, new)
    if old.node in model.outputs():
        node = graph[old.node]
        before = [*(source.node for source in node.inputs), *node.controls]
        node.op, node.attrs = "Identity", {"T": attr_value(dtype)}
        graph.set_inputs(node, [new], [])
        sweep(model, before, why, give_way=True)
    else:
        sweep(model, [old.node], why, give_way=True)
