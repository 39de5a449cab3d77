# SPDX-License-Identifier: Apache-2.0
"""Branches that are never taken are removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.graph import Graph, Output
from graph_tools.model import Endpoint, Model, Signature
from graph_tools.passes.cut.eliminate_control_inputs import EliminateControlInputs
from graph_tools.passes.cut.eliminate_dead_branches import EliminateDeadBranches
from graph_tools.passes.cut.eliminate_identities import EliminateIdentities
from helpers.graph_tools.pass_checks import checked, from_function, from_graph, ops_of, rewritten, x_of

PHASES = [False, True]


def with_switches(v1: Any, condition: Any, taken: Any, not_taken: Any) -> Any:
    v1.disable_control_flow_v2()
    try:
        return v1.cond(condition, taken, not_taken)
    finally:
        v1.enable_control_flow_v2()


@pytest.mark.parametrize("training", PHASES)
def test_switches_of_tf1_are_decided(tmp_path: Path, training: bool) -> None:
    def build(v1: Any, x: Any) -> Any:
        phase = v1.placeholder_with_default(training, [], name="keras_learning_phase")
        noise = lambda: x + v1.random_uniform([3]) * v1.constant(0.0)  # noqa: E731
        return v1.nn.relu(with_switches(v1, phase, noise, lambda: x * v1.constant(2.0)))

    passes = [EliminateIdentities(), EliminateDeadBranches(), EliminateControlInputs(), EliminateIdentities()]
    model, _ = checked(from_graph(tmp_path, build, 3), x_of(3), *passes)
    assert not {"Switch", "Merge", "PlaceholderWithDefault"} & ops_of(model)
    assert ("RandomUniform" in ops_of(model)) is training
    if not training:
        assert ops_of(model) == {"Placeholder", "Const", "Mul", "Relu", "Identity"}
        assert ("RandomUniform", "in a branch that is never taken") in model.graph.removed.values()


def test_switches_inside_a_branch_that_is_not_taken_are_removed(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        inner = lambda: with_switches(v1, v1.reduce_sum(x) > 0.0, lambda: x + 1.0, lambda: x - 1.0)  # noqa: E731
        return v1.nn.relu(with_switches(v1, v1.constant(False), inner, lambda: x * 2.0))

    passes = [EliminateIdentities(), EliminateDeadBranches(), EliminateControlInputs(), EliminateIdentities()]
    model, _ = checked(from_graph(tmp_path, build, 3), x_of(3), *passes)
    assert ops_of(model) == {"Placeholder", "Const", "Mul", "Relu", "Identity"}


def test_condition_of_a_request_is_kept(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.nn.relu(with_switches(v1, v1.reduce_sum(x) > 0.0, lambda: x + 1.0, lambda: x - 1.0))

    model, result = checked(from_graph(tmp_path, build, 3), x_of(3), EliminateDeadBranches())
    assert result.applied == 0
    assert "Merge" in ops_of(model)


@pytest.mark.parametrize("training", PHASES)
def test_if_is_inlined(tmp_path: Path, training: bool) -> None:
    weights = tf.Variable(np.ones((3, 2), np.float32))

    def serve(x: Any) -> Any:
        with tf.init_scope():
            phase = tf.constant(training)
        again = lambda: tf.cond(phase, lambda: x + 1.0, lambda: x - 1.0)  # noqa: E731
        return tf.cond(tf.identity(phase), lambda: tf.matmul(again(), weights), lambda: tf.matmul(x, 2.0 * weights))

    source = from_function(tmp_path, serve, 3, weights=weights)
    model, results = rewritten(source, EliminateIdentities(), EliminateDeadBranches())
    if not results[-1].applied:
        pytest.fail(f"no branch was decided: {sorted(ops_of(model))}")
    model, _ = checked(source, x_of(3), EliminateIdentities(), EliminateDeadBranches())
    assert not {"If", "StatelessIf"} & ops_of(model)
    assert "MatMul" in ops_of(model)


def test_case_is_inlined(tmp_path: Path) -> None:
    def serve(x: Any) -> Any:
        return tf.switch_case(tf.identity(tf.constant(7)), [lambda: x + 1.0, lambda: x + 2.0, lambda: x + 3.0])

    model, _ = checked(from_function(tmp_path, serve, 3), x_of(3), EliminateIdentities(), EliminateDeadBranches())
    assert not {"Case", "StatelessCase"} & ops_of(model)


@pytest.mark.parametrize("condition", [True, [True, True, True]])
def test_selection_is_decided(tmp_path: Path, condition: Any) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.nn.relu(v1.raw_ops.SelectV2(condition=v1.constant(condition), t=x, e=v1.random_uniform([3])))

    model, result = checked(
        from_graph(tmp_path, build, 3), x_of(3), EliminateDeadBranches(), EliminateIdentities(), EliminateDeadBranches()
    )
    assert not result.refused
    assert ops_of(model) == {"Placeholder", "Relu", "Identity"}


def test_selection_that_broadcasts_stays(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.nn.relu(v1.raw_ops.SelectV2(condition=v1.constant(True), t=v1.constant([1.0]), e=x))

    model, result = checked(from_graph(tmp_path, build, 3), x_of(3), EliminateDeadBranches())
    assert [reason for _, reason in result.refused] == [
        "the side that is taken may be broadcast, expected a known shape"
    ]
    assert "SelectV2" in ops_of(model)


def test_output_in_a_dead_branch_is_reported() -> None:
    graph = Graph()
    x = graph.add("Placeholder", name="x", attrs={"dtype": tf.float32}).output()
    switch = graph.add("Switch", [x, graph.add_const(False)], name="switch", attrs={"T": tf.float32})
    graph.add("Neg", [switch.output(1)], name="y", attrs={"T": tf.float32})
    signatures = {"s": Signature({}, {"y": Endpoint(Output("y"), tf.float32, None)})}
    result = EliminateDeadBranches().apply(Model(Path("m"), "GraphDef", graph, signatures))
    assert result.refused == [("y", "a signature's output is never computed, expected a living branch")]
    assert len(graph) == 4
