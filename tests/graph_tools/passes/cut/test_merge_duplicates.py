# SPDX-License-Identifier: Apache-2.0
"""Nodes and variables that exist twice are kept once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.graph import Graph, Output
from graph_tools.graph.sparse_lookup import add_lookup, lookups
from graph_tools.model import Endpoint, Model, Signature
from graph_tools.passes.cut.merge_duplicates import MergeDuplicates
from helpers.graph_tools.pass_checks import checked, floats, from_graph, ops_of, x_of


def count(model: Model, op: str) -> int:
    return len(model.graph.of(op))


def test_equal_subgraphs_merge(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.add_n([v1.nn.relu(x * v1.constant([1.0, 2.0, 3.0]) + 0.5) for _ in range(4)])

    model, result = checked(from_graph(tmp_path, build, 3), x_of(3), MergeDuplicates())
    assert result.applied
    assert (count(model, "Relu"), count(model, "Mul"), count(model, "Const")) == (1, 1, 2)
    assert ("Relu", "computes the same as 'Relu'") in model.graph.removed.values()


def test_equal_constants_merge_however_they_are_written() -> None:
    import tensorflow as tf
    from tensorflow.core.framework import tensor_pb2

    graph = Graph()
    packed = graph.add_const(np.full(3, 2.0, np.float32))
    short = tensor_pb2.TensorProto(dtype=tf.float32.as_datatype_enum, float_val=[2.0])
    short.tensor_shape.dim.add(size=3)
    listed = graph.add("Const", attrs={"dtype": tf.float32, "value": short}).output()
    other = graph.add_const(np.full(3, 2, np.int32))
    graph.add("Pack", [packed, listed, other], name="y", attrs={"T": tf.float32, "N": 3})
    assert MergeDuplicates().apply(model_of(graph)).applied == 1
    assert graph["y"].inputs == [packed, packed, other]


def model_of(graph: Graph, *outputs: str) -> Model:
    import tensorflow as tf

    ends = {name: Endpoint(Output(name), tf.float32, None) for name in outputs or ("y",)}
    return Model(Path("m"), "GraphDef", graph, {"s": Signature({}, ends)})


def test_other_attributes_inputs_or_constants_stay(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        rows = v1.reduce_sum(x, 1, keepdims=True) + v1.reshape(v1.reduce_sum(x, 1), v1.constant([-1, 1]))
        words = v1.strings.length(v1.constant(["a", "ab"])) + v1.strings.length(v1.constant(["aa", "b"]))
        return x * 2.0 + x * 3.0 + rows + v1.cast(words[0], v1.float32)

    model, result = checked(from_graph(tmp_path, build, 3), x_of(3), MergeDuplicates())
    assert result.applied
    assert [count(model, op) for op in ("Mul", "Sum", "StringLength")] == [2, 2, 2]


def test_random_numbers_stay_apart(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        first, second = (v1.random_uniform([3], seed=1) for _ in range(2))
        return x + v1.cast(v1.reduce_all(v1.equal(first, second)), v1.float32) * 0.0

    model, _ = checked(from_graph(tmp_path, build, 3), x_of(3), MergeDuplicates())
    assert count(model, "RandomUniform") == 2


def test_equal_variables_merge(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).normal(size=(3, 300)).astype(np.float32)
    other = weights.copy()
    other[-1, -1] += 1.0  # Alike at the beginning only.

    def build(v1: Any, x: Any) -> Any:
        values = (("a", weights), ("b", weights), ("c", other), ("d", weights.astype(np.float64)))
        kernels = [v1.get_variable(name, initializer=value) for name, value in values]
        return sum(v1.matmul(x, v1.cast(kernel, v1.float32)) for kernel in kernels)

    model, result = checked(from_graph(tmp_path, build, 3), x_of(3), MergeDuplicates())
    assert set(model.variables) == {"a", "c", "d"}
    assert model.graph.removed["b"] == ("VarHandleOp", "every element equals that of the variable 'a'")
    assert result.applied >= 2


def test_equal_embedding_tables_stay_two(tmp_path: Path) -> None:
    rows = np.zeros((300, 3), np.float32)

    def build(v1: Any, x: Any) -> Any:
        ids = v1.cast(v1.abs(x[:, 0]) * 10.0, v1.int32)
        return sum(v1.gather(v1.get_variable(name, initializer=rows), ids) for name in ("a", "b"))

    model, _ = checked(from_graph(tmp_path, build, 3), x_of(3), MergeDuplicates())
    assert set(model.variables) == {"a", "b"}


def test_variable_that_is_written_stays(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        one, other = (v1.get_variable(name, initializer=np.float32(0)) for name in ("one", "other"))
        first = one.read_value()
        with v1.control_dependencies([v1.assign_add(one, 1.0)]):
            second = one.read_value()
        return x + first * 0.0 + second * 0.0 + other.read_value()

    model, _ = checked(from_graph(tmp_path, build, 3), x_of(3), MergeDuplicates())
    assert set(model.variables) == {"one", "other"}
    reads = [node for node in model.graph.of("ReadVariableOp") if node.inputs[0].node == "one"]
    assert len(reads) >= 2


def test_two_outputs_keep_their_names(tmp_path: Path) -> None:
    from helpers.models.idiom_models import export_graph

    def build(v1: Any) -> Any:
        x = v1.placeholder(v1.float32, [None, 3], name="x")
        inside = v1.nn.relu(x, name="inside")
        return {"x": x}, {"y": v1.nn.relu(x, name="y"), "z": v1.nn.relu(x, name="z"), "w": inside + 1.0}

    model, result = checked(export_graph(tmp_path / "source", build), x_of(3), MergeDuplicates())
    assert result.applied == 1
    assert {"y", "z"} <= set(model.graph.nodes)
    assert "inside" not in model.graph


def test_users_of_an_earlier_node_that_went_merge_too() -> None:
    import tensorflow as tf

    graph = Graph()
    kind = {"T": tf.float32}
    x = graph.add("Placeholder", name="x", attrs={"dtype": tf.float32}).output()
    early = graph.add("Neg", [x], name="early", attrs=kind).output()
    a = graph.add("Abs", [early], name="a", attrs=kind).output()
    late = graph.add("Neg", [x], name="late", attrs=kind).output()
    b = graph.add("Abs", [late], name="b", attrs=kind).output()
    graph.add("AddV2", [a, b], name="y", attrs=kind)
    model = model_of(graph, "y", "late")
    assert MergeDuplicates().apply(model).applied == 2
    assert len(graph.of("Abs")) == 1
    assert MergeDuplicates().apply(model).applied == 0


def test_lookups_of_one_table_by_the_same_keys_merge() -> None:
    import tensorflow as tf

    graph = Graph()
    keys = graph.add("Placeholder", name="keys", attrs={"dtype": tf.int64}).output()
    rows = [add_lookup(graph, table, keys, tf.int64, 4, tf.float32).output() for table in ("t", "t", "u")]
    graph.add("AddN", rows, name="y", attrs={"T": tf.float32, "N": 3})
    assert MergeDuplicates().apply(model_of(graph)).applied == 1
    assert len(lookups(graph, "t")) == len(lookups(graph, "u")) == 1


def test_inputs_stay(tmp_path: Path) -> None:
    from helpers.models.idiom_models import export_graph

    def build(v1: Any) -> Any:
        a, b = (v1.placeholder(v1.float32, [None], name=name) for name in "ab")
        return {"a": a, "b": b}, {"y": a * 2.0 - b * 2.0}

    feeds = [{"a": floats(3), "b": floats(3, seed=9)}]
    model, _ = checked(export_graph(tmp_path / "source", build), feeds, MergeDuplicates())
    assert count(model, "Placeholder") == 2
    assert "Mul" in ops_of(model)
