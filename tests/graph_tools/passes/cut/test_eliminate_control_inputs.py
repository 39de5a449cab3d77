# SPDX-License-Identifier: Apache-2.0
"""Control inputs that order nothing are removed, and writes on which no output depends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from graph_tools.passes.cut.eliminate_control_inputs import EliminateControlInputs
from helpers.graph_tools.pass_checks import checked, from_function, from_graph, ops_of, rewritten, x_of


def test_waits_for_reads_are_removed(tmp_path: Path) -> None:
    weights = tf.Variable(np.ones((3, 2), np.float32))
    source = from_function(tmp_path, lambda x: tf.matmul(x, weights), 3, weights=weights)
    model, result = checked(source, x_of(3), EliminateControlInputs())
    assert result.applied
    assert not [node for node in model.graph if node.controls]
    assert "NoOp" not in ops_of(model)


def test_waits_for_a_table_that_is_filled_at_load_are_removed(string_model: Path) -> None:
    model, result = rewritten(string_model, EliminateControlInputs())
    assert result[-1].applied
    assert "NoOp" not in ops_of(model)
    assert "InitializeTableFromTextFileV2" in ops_of(model)


def test_counter_that_no_output_reads_is_removed(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        counter = v1.get_variable("counter", initializer=np.float32(0))
        with v1.control_dependencies([v1.assign_add(counter, 1.0)]):
            return v1.nn.relu(x)

    model, result = checked(from_graph(tmp_path, build, 3), x_of(3), EliminateControlInputs())
    assert ops_of(model) == {"Placeholder", "Relu", "Identity"}
    assert not model.variables
    assert not result.refused
    op, why = next(removed for removed in model.graph.removed.values() if removed[0] == "AssignAddVariableOp")
    assert why == f"{op} of 'counter', which no output reads"


def test_moving_average_that_is_only_updated_is_removed(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        mean = v1.get_variable("mean", initializer=np.float32(0))
        with v1.control_dependencies([v1.assign(mean, 0.9 * mean + 0.1 * v1.reduce_mean(x))]):
            return v1.nn.relu(x)

    model, _ = checked(from_graph(tmp_path, build, 3), x_of(3), EliminateControlInputs())
    assert ops_of(model) == {"Placeholder", "Relu", "Identity"}


def test_variable_that_an_output_reads_is_still_written(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        counter = v1.get_variable("counter", initializer=np.float32(0))
        with v1.control_dependencies([v1.assign_add(counter, 1.0)]):
            return x + counter.read_value()

    model, result = checked(from_graph(tmp_path, build, 3), x_of(3), EliminateControlInputs())
    assert [site for site, _ in result.refused] == ["counter"]
    assert "(AssignAddVariableOp) changes it at every request" in result.refused[0][1]
    write = model.graph.of("AssignAddVariableOp")[0].name
    assert any(write in node.controls for node in model.graph.of("ReadVariableOp", "Identity"))


def test_nodes_in_branches_of_tf1_keep_their_control_inputs(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        v1.disable_control_flow_v2()
        try:
            return v1.cond(v1.reduce_sum(x) > 0.0, lambda: x + v1.constant(1.0), lambda: x * v1.constant(3.0))
        finally:
            v1.enable_control_flow_v2()

    model, result = checked(from_graph(tmp_path, build, 3), [*x_of(3), {"x": -np.ones((2, 3), np.float32)}],
                            EliminateControlInputs())  # fmt: skip
    assert result.applied == 0
    assert {"Switch", "Merge"} <= ops_of(model)
    assert all(node.controls for node in model.graph.of("Const") if "cond" in node.name)
