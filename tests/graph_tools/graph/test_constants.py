# SPDX-License-Identifier: Apache-2.0
"""The nodes through which the value of a constant is followed."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.graph import Graph, Output, constant, constant_list, is_constant


def _binary(graph: Graph, op: str, left: object, right: object) -> Output:
    return graph.add(op, [graph.add_const(left), graph.add_const(right)], attrs={"T": tf.int32}).output()


@pytest.mark.parametrize("op", ["Identity", "Snapshot", "StopGradient", "PreventGradient"])
def test_value_is_followed_through_nodes_that_pass_it_on(op: str) -> None:
    graph = Graph()
    passed = graph.add(op, [graph.add(op, [graph.add_const("text")]).output()])
    assert constant(graph, passed.output()) == b"text"


def test_value_is_not_followed_through_other_nodes() -> None:
    graph = Graph()
    assert constant(graph, graph.add("Neg", [graph.add_const(3)]).output()) is None
    assert constant(graph, graph.add("ReadVariableOp", [graph.add("VarHandleOp").output()]).output()) is None


@pytest.mark.parametrize("waiting", ["Const", "Identity", "Cast", "AddV2"])
def test_control_inputs_do_not_change_the_value_but_may_be_excluded(waiting: str) -> None:
    graph = Graph()
    graph.add("NoOp", name="check")
    value = graph.add_const(np.int64(3), "Const")
    cast = graph.add("Cast", [value], name="Cast", attrs={"SrcT": tf.int64, "DstT": tf.int32}).output()
    added = graph.add("AddV2", [cast, graph.add_const(4, "four")], name="AddV2", attrs={"T": tf.int32}).output()
    last = graph.add("Identity", [added], name="Identity").output()
    assert constant(graph, last, waits=False) == 7
    node = graph[waiting]
    graph.set_inputs(node, node.inputs, ["check"])
    assert constant(graph, last) == 7
    assert constant(graph, last, waits=False) is None


def test_casts_are_followed_to_integers_only() -> None:
    graph = Graph()
    value = graph.add_const(np.array([1.5, -2.0], np.float32))
    for dtype, expected in ((tf.int64, [1, -2]), (tf.float64, None), (tf.bool, None)):
        cast = graph.add("Cast", [value], attrs={"SrcT": tf.float32, "DstT": dtype}).output()
        assert constant_list(graph, cast) == expected


@pytest.mark.parametrize(
    ("op", "expected"),
    [("AddV2", 4), ("Sub", -10), ("Mul", -21), ("FloorDiv", -1), ("FloorMod", 4), ("Maximum", None)],
)
def test_arithmetic_is_that_of_tensorflow(op: str, expected: int | None) -> None:
    graph = Graph()
    found = constant(graph, _binary(graph, op, -3, 7))
    assert found == expected
    if expected is not None:
        assert found == getattr(tf.raw_ops, op)(x=-3, y=7).numpy()


@pytest.mark.parametrize("op", ["FloorDiv", "FloorMod"])
def test_division_by_zero_has_no_value(op: str) -> None:
    graph = Graph()
    assert constant(graph, _binary(graph, op, 5, 0)) is None


def test_arithmetic_on_vectors_and_floats_is_left_to_constant_folding() -> None:
    graph = Graph()
    assert constant(graph, _binary(graph, "AddV2", [1, 2], 1)) is None
    ones = [graph.add_const(np.float32(1)), graph.add_const(np.float32(1))]
    assert constant(graph, graph.add("AddV2", ones, attrs={"T": tf.float32}).output()) is None


@pytest.mark.parametrize(("start", "expected"), [(np.int64(1), 2**60), (np.float64(1), None)])
def test_value_used_twice_is_read_once(start: object, expected: int | None) -> None:
    graph = Graph()
    value = graph.add_const(start)
    for _ in range(60):
        value = graph.add("AddV2", [value, value], attrs={"T": tf.as_dtype(np.asarray(start).dtype)}).output()
    assert constant(graph, value) == expected


def test_chains_of_any_length_are_answered() -> None:
    graph = Graph()
    value = graph.add_const(np.int64(0))
    for _ in range(5000):
        value = graph.add("AddV2", [value, graph.add_const(np.int64(1))], attrs={"T": tf.int64}).output()
    assert constant(graph, value) is None


def test_lists_have_integers_and_single_values_may_have_any_rank() -> None:
    graph = Graph()
    assert constant_list(graph, graph.add_const([[1, 2]])) == [1, 2]
    assert constant_list(graph, graph.add_const([1.0])) is None
    assert is_constant(graph, graph.add_const([[0]]), 0, 1)
    assert is_constant(graph, graph.add_const("missing"), b"missing")
    assert not is_constant(graph, graph.add_const([0, 0]), 0)
