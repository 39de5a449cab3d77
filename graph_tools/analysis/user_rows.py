# SPDX-License-Identifier: Apache-2.0
"""Find the inputs of a model that belong to the user, and may be sent once for many items."""

from __future__ import annotations

from collections.abc import Iterable

from graph_tools.graph import Graph
from graph_tools.model import Model, Signature
from graph_tools.options import matching

#: The ops that separate the single row of a user from the rows of items.
COLLAPSE, EXPAND = "RecCollapseRows", "RecExpandRows"


def user_inputs(graph: Graph, signature: Signature) -> list[str]:
    """Return the names of a signature's inputs for which one row is enough for all items."""
    given = {source for node in graph.of(COLLAPSE) for source in node.inputs[:-1]}
    return [key for key, endpoint in signature.inputs.items() if endpoint.tensor in given]


def all_user_inputs(model: Model, asked: Iterable[str] = ()) -> list[str]:
    """Return the user inputs of all signatures, each once; if there are any, add requested inputs that are unused."""
    names: dict[str, None] = {}
    for signature in model.signatures.values():
        split = user_inputs(model.graph, signature)
        unused = [key for key, endpoint in signature.inputs.items() if not model.graph.users(endpoint.tensor.node)]
        also = matching(asked, unused) if split else []
        names |= dict.fromkeys(key for key in signature.inputs if key in split or key in also)
    return list(names)
