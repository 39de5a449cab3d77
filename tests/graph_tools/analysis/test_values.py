# SPDX-License-Identifier: Apache-2.0
"""Values that passes may use instead of the nodes that compute them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graph_tools.analysis.values import Values
from graph_tools.graph import Graph, Output
from graph_tools.model import Model
from graph_tools.tensors import ArrayTensor


def _model() -> Model:
    graph = Graph()
    handle = graph.add("VarHandleOp", name="weights")
    graph.add("ReadVariableOp", [handle.output()], name="read")
    return Model(Path("model"), "GraphDef", graph, {}, {"weights": ArrayTensor(np.arange(4.0))})


def test_a_constant_that_waits_for_another_node_has_no_value() -> None:
    model = _model()
    graph = model.graph
    graph.add("NoOp", name="check")
    passed = graph.add("Identity", [graph.add_const(1)])
    assert Values(model).scalar(passed.output()) == 1
    graph.set_inputs(passed, passed.inputs, ["check"])
    assert Values(model).scalar(passed.output()) is None


def test_a_variable_is_read_up_to_a_size_and_if_nothing_writes_it() -> None:
    model = _model()
    read = Output("read")
    np.testing.assert_array_equal(Values(model).value(read), np.arange(4.0))
    assert Values(model).constant(read) is None
    assert Values(model).value(read, limit=31) is None
    model.graph.add("AssignVariableOp", [Output("weights"), read])
    assert Values(model).value(read) is None
