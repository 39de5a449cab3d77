# SPDX-License-Identifier: Apache-2.0
"""Let a model follow its source variables: weights become formulas of them while passes rewrite the graph."""

from __future__ import annotations

import numpy as np

from graph_tools.graph import Output, has_effect
from graph_tools.live import Formulas, LiveTensor
from graph_tools.model import Model
from graph_tools.tensors import ArrayTensor


def follow_variables(model: Model) -> None:
    """Mark the float32 variables of a model, as it was read, as variables that a trainer may change.

    Variables that the graph itself writes while it serves are state of the server and not followed.
    """
    # The graph still has the nodes that initialize, train and restore variables.
    graph, served = model.graph, model.graph.ancestors(model.outputs())
    written = {source.node for name in served if has_effect(graph, graph[name]) for source in graph[name].inputs}
    names = [name for name, tensor in model.variables.items() if tensor.dtype == np.float32 and name not in written]
    model.live = Formulas([*names, *(table.name for table in model.sparse_tables.values())])
    for name in names:
        model.variables[name] = LiveTensor.of_variable(model.live, name, model.variables[name])


def settle_weights(model: Model) -> dict[str, Output]:
    """Give followed variables the values of the source model, and return the formula of each, by handle.

    Passes that run afterwards see ordinary variables.
    """
    held = {name: tensor for name, tensor in model.variables.items() if isinstance(tensor, LiveTensor)}
    assert model.live is not None
    computed = [name for name, tensor in held.items() if tensor.source is None]
    found = {name: held[name].traced.output for name in computed}
    values = model.live.evaluate(list(found.values()))
    for name, tensor in held.items():
        if tensor.source is not None:
            found[name] = model.live.source(tensor.source, tensor.plain)
            model.variables[name] = tensor.plain
    for name, value in zip(computed, values, strict=True):
        model.variables[name] = ArrayTensor(value)
    return found
