# SPDX-License-Identifier: Apache-2.0
"""Static shapes as TensorFlow infers them, also behind ops that it does not know."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.analysis.shapes import shapes
from graph_tools.errors import UnreadableError
from graph_tools.graph import Graph, Output, dtype_of
from graph_tools.graph.sparse_lookup import add_lookup
from graph_tools.model import Model
from graph_tools.tensors import ArrayTensor


def model_with(*shape: int | None, dtype: object = tf.int64) -> tuple[Model, Output]:
    graph = Graph()
    keys = graph.add("Placeholder", name="keys", attrs={"dtype": dtype, "shape": tuple(shape)})
    return Model(Path("m"), "GraphDef", graph, {}), keys.output()


@pytest.mark.parametrize("dtype", [tf.int64, tf.int32, tf.uint64, tf.string])
def test_lookup_gives_a_row_for_each_key(dtype: object) -> None:
    model, keys = model_with(None, 3, dtype=dtype)
    rows = add_lookup(model.graph, "table", keys, dtype, 16, tf.float32).output()
    sums = model.graph.add("Neg", [rows], attrs={"T": tf.float32}).output()
    shape_of = shapes(model)
    assert shape_of(rows) == (None, 3, 16)
    assert shape_of(sums) == (None, 3, 16)
    assert dtype_of(model.graph, rows) == tf.float32


def test_table_of_scalars_gives_the_shape_of_its_keys() -> None:
    model, keys = model_with(None, 2, dtype=tf.string)
    graph = model.graph
    types = {"key_dtype": tf.string, "value_dtype": tf.int64}
    table = graph.add("HashTableV2", attrs=types).output()
    found = graph.add(
        "LookupTableFindV2", [table, keys, graph.add_const(np.int64(0))], attrs={"Tin": tf.string, "Tout": tf.int64}
    )
    assert shapes(model)(found.output()) == (None, 2)


def test_op_that_nobody_describes_has_the_dtype_that_its_user_wants() -> None:
    model, keys = model_with(None)
    graph = model.graph
    custom = graph.add("NobodyKnows", [keys])
    graph.add("Neg", [custom.output(1)], attrs={"T": tf.float64})
    assert shapes(model)(custom.output(1)) is None
    assert dtype_of(graph, custom.output(1)) == tf.float64


def test_variable_has_the_shape_of_what_is_restored() -> None:
    model, _ = model_with(None)
    graph = model.graph
    any_shape = tf.TensorShape(None).as_proto()
    handle = graph.add("VarHandleOp", name="v", attrs={"dtype": tf.float32, "shape": any_shape})
    model.variables["v"] = ArrayTensor(np.zeros((4, 2), np.float32))
    read = graph.add("ReadVariableOp", [handle.output()], attrs={"dtype": tf.float32})
    assert shapes(model)(read.output()) == (4, 2)


def test_shapes_are_kept_until_the_graph_changes() -> None:
    model, keys = model_with(None, 3)
    first = shapes(model)
    assert shapes(model) is first
    added = model.graph.add("Neg", [keys], attrs={"T": tf.int64})
    assert first(added.output()) is None
    assert shapes(model)(added.output()) == (None, 3)


def test_graph_is_not_changed() -> None:
    model, keys = model_with(None)
    add_lookup(model.graph, "table", keys, tf.int64, 4, tf.float32)
    before = model.graph.to_graph_def()
    shapes(model)
    assert model.graph.to_graph_def() == before


def test_graph_that_tensorflow_refuses_is_an_error() -> None:
    model, keys = model_with(None, 3)
    model.graph.add("MatMul", [keys, model.graph.add_const(np.zeros((5, 2), np.int64))], attrs={"T": tf.int64})
    with pytest.raises(UnreadableError, match=r"m: .* expected a graph that TensorFlow imports"):
        shapes(model)
