# SPDX-License-Identifier: Apache-2.0
"""Assertions, prints and summaries are removed, with the nodes that only they needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from graph_tools.passes.cut.eliminate_assertions import EliminateAssertions
from graph_tools.passes.cut.eliminate_control_inputs import EliminateControlInputs
from helpers.graph_tools.pass_checks import checked, from_function, from_graph, ops_of, rewritten, x_of


def asserted(v1: Any, x: Any) -> Any:
    check = v1.raw_ops.Assert(condition=v1.reduce_all(x < 100.0), data=[x], name="check")
    with v1.control_dependencies([check]):
        return v1.nn.relu(x)


def printed(v1: Any, x: Any) -> Any:
    return v1.nn.relu(v1.Print(x, [v1.reduce_sum(x)], "sum"))


def checked_numbers(v1: Any, x: Any) -> Any:
    return v1.nn.relu(v1.debugging.check_numerics(x, "not a number"))


def summarized(v1: Any, x: Any) -> Any:
    scalar = v1.summary.scalar("mean", v1.reduce_mean(x))
    with v1.control_dependencies([v1.summary.merge([scalar, v1.summary.histogram("x", x)])]):
        return v1.nn.relu(x)


@pytest.mark.parametrize("build", [asserted, printed, checked_numbers, summarized])
def test_assertions_prints_and_summaries_are_removed(tmp_path: Path, build: Any) -> None:
    model, result = checked(from_graph(tmp_path, build, 3), x_of(3), EliminateAssertions())
    assert result.applied
    assert ops_of(model) == {"Placeholder", "Relu", "Identity"}
    assert {why.partition("(")[0] for _, why in model.graph.removed.values()} >= {
        "only an assertion, print or summary needed it "
    } or build is checked_numbers


def test_guards_of_tf2_are_removed_completely(tmp_path: Path) -> None:
    def serve(x: Any) -> Any:
        tf.debugging.assert_less(x, 100.0)
        tf.print("sum", tf.reduce_sum(x))
        return tf.nn.relu(x)

    source = from_function(tmp_path, serve, 3)
    model, results = rewritten(source, EliminateAssertions())
    assert results[-1].applied == 2
    assert not {"If", "Assert", "PrintV2", "StringFormat"} & ops_of(model)
    model, _ = checked(source, x_of(3), EliminateAssertions(), EliminateControlInputs())
    assert ops_of(model) <= {"Placeholder", "Relu", "Identity", "IdentityN"}


def test_guards_of_tf1_are_removed_with_their_branch(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        with v1.control_dependencies([v1.assert_less(x, 100.0)]):
            return v1.nn.relu(x)

    model, _ = checked(from_graph(tmp_path, build, 3), x_of(3), EliminateAssertions(), EliminateControlInputs())
    assert ops_of(model) == {"Placeholder", "Relu", "Identity"}


def test_branch_that_also_writes_stays(tmp_path: Path) -> None:
    variable = tf.Variable(0.0)

    def count() -> Any:
        variable.assign_add(1.0)
        tf.debugging.Assert(variable < 1e9, [variable])
        return True

    def serve(x: Any) -> Any:
        tf.cond(tf.reduce_sum(x) > 0.0, count, lambda: False)
        return tf.nn.relu(x)

    model, results = rewritten(from_function(tmp_path, serve, 3, held=variable), EliminateAssertions())
    assert results[-1].applied == 0
    assert "If" in ops_of(model)


def test_summary_that_is_an_output_stays(tmp_path: Path) -> None:
    from helpers.models.idiom_models import export_graph

    def build(v1: Any) -> Any:
        x = v1.placeholder(v1.float32, [None, 3], name="x")
        return {"x": x}, {"y": v1.summary.scalar("mean", v1.reduce_mean(x))}

    model, (result,) = rewritten(export_graph(tmp_path / "source", build), EliminateAssertions())
    (summary,) = model.graph.of("ScalarSummary")
    assert result.refused == [(summary.name, "a signature names it, expected a node inside the graph")]


def test_summary_that_a_model_computes_with_stays(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.strings.length(v1.summary.scalar("mean", v1.reduce_mean(x)), name="length")

    model, result = checked(from_graph(tmp_path, build, 3), x_of(3), EliminateAssertions())
    (summary,) = model.graph.of("ScalarSummary")
    assert result.refused == [(summary.name, "'length' uses its output, expected other summaries at most")]
