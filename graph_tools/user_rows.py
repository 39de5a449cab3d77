# SPDX-License-Identifier: Apache-2.0
"""Which inputs of a model are a user's, and may come once for many items."""

from __future__ import annotations

from graph_tools.graph import Graph
from graph_tools.model import Model, Signature

#: The ops that keep one row of a user apart from the rows of items.
COLLAPSE, EXPAND = "RecCollapseRows", "RecExpandRows"


def user_inputs(graph: Graph, signature: Signature) -> list[str]:
    """Name the inputs of a signature of which one row is enough for all items."""
    given = {one for node in graph.of(COLLAPSE) for one in node.inputs}
    return [key for key, endpoint in signature.inputs.items() if endpoint.tensor in given]


def all_user_inputs(model: Model) -> list[str]:
    """Name those of all signatures, each once."""
    names = [user_inputs(model.graph, one) for one in model.signatures.values()]
    return list(dict.fromkeys(name for one in names for name in one))
