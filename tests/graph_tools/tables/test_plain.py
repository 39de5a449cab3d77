# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_tools.graph import Graph
from graph_tools.model import Endpoint, Model, Signature
from graph_tools.model.tables import PlannedTensor
from graph_tools.tables.plain import plain_tables
from graph_tools.tensors import ArrayTensor


def variable_model(value: np.ndarray) -> Model:
    """A model whose variable `table` nothing reads yet, with an input `ids`."""
    import tensorflow as tf

    graph = Graph()
    attrs = {"dtype": tf.as_dtype(value.dtype), "shape": value.shape, "shared_name": "table", "container": ""}
    graph.add("VarHandleOp", name="table", attrs=attrs)
    graph.add("Placeholder", name="ids", attrs={"dtype": tf.int64})
    graph.add_const(np.int32(0), "axis")
    ids = Endpoint(graph["ids"].output(), tf.int64, None)
    model = Model(Path("m"), "GraphDef", graph, {"serving_default": Signature({"ids": ids}, {})})
    model.variables["table"] = ArrayTensor(value)
    return model


def gather(model: Model, **attrs: int) -> None:
    graph = model.graph
    types = {"dtype": np.float32, "Tindices": np.int64, "batch_dims": 0} | attrs
    graph.add("ResourceGather", [graph["table"].output(), graph["ids"].output()], name="gather", attrs=types)


def read(model: Model, axis: str = "axis") -> None:
    graph = model.graph
    value = graph.add("ReadVariableOp", [graph["table"].output()], name="read", attrs={"dtype": np.float32})
    same = graph.add("Identity", [value.output()], name="same", attrs={"T": np.float32})
    graph.add("GatherV2", [same.output(), graph["ids"].output(), graph[axis].output()], name="gather_v2")


MATRIX = np.ones((10, 4), np.float32)


def test_both_ways_of_gathering_are_found() -> None:
    model = variable_model(MATRIX)
    gather(model)
    read(model)
    (table,), refused = plain_tables(model)
    assert table.gathers == ("gather", "gather_v2")
    assert table.reads == ("read", "same")
    assert [str(tensor) for tensor in table.ids(model)] == ["ids:0", "ids:0"]
    assert not refused


@pytest.mark.parametrize("value", [MATRIX.astype(np.int32), MATRIX[:, 0], np.ones((3, 2, 2), np.float32), MATRIX[:0]])
def test_only_matrices_of_floats_are_tables(value: np.ndarray) -> None:
    model = variable_model(value)
    gather(model)
    assert plain_tables(model) == ([], [])


def test_a_variable_without_gathers_is_not_a_table() -> None:
    model = variable_model(MATRIX)
    model.graph.add("ReadVariableOp", [model.graph["table"].output()], attrs={"dtype": np.float32})
    assert plain_tables(model) == ([], [])


def test_variables_made_by_a_plan_are_not_plain_tables() -> None:
    model = variable_model(MATRIX)
    gather(model)
    model.variables["table"] = PlannedTensor(MATRIX.dtype, MATRIX.shape, lambda rows: iter([MATRIX]))
    assert plain_tables(model) == ([], [])


def refusal(model: Model) -> str:
    tables, refused = plain_tables(model)
    assert not tables
    ((name, reason),) = refused
    assert name == "table"
    return reason


def test_other_readers_are_named() -> None:
    model = variable_model(MATRIX)
    read(model)
    model.graph.add("MatMul", [model.graph["same"].output(), model.graph["same"].output()], name="product")
    assert refusal(model) == "'product' (MatMul) reads all of it"


def test_other_axes_and_batches_are_refused() -> None:
    model = variable_model(MATRIX)
    model.graph.add_const(np.int32(1), "other")
    read(model, axis="other")
    assert "another axis" in refusal(model)
    model = variable_model(MATRIX)
    gather(model, batch_dims=1)
    assert "in batches" in refusal(model)


def test_variable_that_the_graph_writes_is_refused() -> None:
    model = variable_model(MATRIX)
    gather(model)
    graph = model.graph
    graph.add("AssignVariableOp", [graph["table"].output(), graph["gather"].output()], attrs={"dtype": np.float32})
    assert refusal(model) == "the graph writes it"


def test_variable_that_clients_fetch_is_refused() -> None:
    import tensorflow as tf

    model = variable_model(MATRIX)
    read(model)
    model.signatures["serving_default"].outputs["all"] = Endpoint(model.graph["read"].output(), tf.float32, None)
    assert refusal(model) == "it is an output of the model"
