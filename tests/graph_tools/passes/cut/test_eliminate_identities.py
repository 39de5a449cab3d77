# SPDX-License-Identifier: Apache-2.0
"""Nodes that return their inputs unchanged are removed; names that clients know stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from graph_tools.graph import Graph, Output
from graph_tools.model import Endpoint, Model, Signature
from graph_tools.passes.cut.eliminate_identities import EliminateIdentities
from helpers.graph_tools.pass_checks import checked, floats, from_function, from_graph, ops_of, x_of


def test_chains_of_identities_are_removed(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        a, _ = v1.raw_ops.IdentityN(input=[x, x + 1.0])
        b = v1.raw_ops.PreventGradient(input=v1.stop_gradient(v1.identity(a)))
        return v1.identity(v1.raw_ops.Snapshot(input=v1.nn.relu(b)))

    model, result = checked(from_graph(tmp_path, build, 3), x_of(3), EliminateIdentities())
    assert result.applied == 6
    assert [node.op for node in model.graph.ordered()] == ["Placeholder", "Relu", "Identity"]
    assert model.graph.removed["IdentityN"] == ("IdentityN", "IdentityN: passes on what it is given")


def test_output_of_a_call_keeps_its_name(tmp_path: Path) -> None:
    model, _ = checked(from_function(tmp_path, lambda x: tf.identity(tf.nn.relu(x)), 3), x_of(3), EliminateIdentities())
    (output,) = model.outputs()
    assert output.startswith(("StatefulPartitionedCall", "PartitionedCall"))
    assert ops_of(model) <= {"Placeholder", "Relu", "IdentityN", "NoOp"}


def test_default_that_no_signature_feeds_replaces_its_node(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.placeholder_with_default(2.0, [], name="scale") * x

    model, result = checked(from_graph(tmp_path, build, 3), x_of(3), EliminateIdentities())
    assert result.applied == 1
    assert "scale" not in model.graph


def test_default_that_clients_feed_stays(tmp_path: Path) -> None:
    from helpers.models.idiom_models import export_graph

    def build(v1: Any) -> Any:
        x = v1.placeholder(v1.float32, [None], name="x")
        scale = v1.placeholder_with_default(2.0, [], name="scale")
        return {"x": x, "scale": scale}, {"y": x * scale}

    feeds = [{"x": floats(3), "scale": 5.0}]
    model, _ = checked(export_graph(tmp_path / "source", build), feeds, EliminateIdentities())
    assert model.graph["scale"].op == "PlaceholderWithDefault"


@pytest.mark.parametrize(("wanted", "refused"), [([None, 3], 0), ([4, 3], 1)])
def test_ensure_shape_is_removed_if_the_shape_is_known(tmp_path: Path, wanted: list[int | None], refused: int) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.nn.relu(v1.ensure_shape(x, wanted))

    model, result = checked(from_graph(tmp_path, build, 3), [{"x": floats(4, 3)}], EliminateIdentities())
    assert len(result.refused) == refused
    assert len(model.graph.of("EnsureShape")) == refused


def graph_model(graph: Graph, output: str) -> Model:
    endpoint = Endpoint(Output(output), tf.float32, None)
    return Model(Path("m"), "GraphDef", graph, {"s": Signature({}, {"y": endpoint})})


def test_control_inputs_are_carried_over() -> None:
    graph = Graph()
    x = graph.add("Placeholder", name="x", attrs={"dtype": tf.float32}).output()
    graph.add("AssignVariableOp", name="write")
    passed = graph.add("Identity", [x], name="passed", controls=["write"], attrs={"T": tf.float32})
    graph.add("Neg", [passed.output()], name="uses", attrs={"T": tf.float32})
    graph.add("Abs", [x], name="waits", controls=["passed"], attrs={"T": tf.float32})
    graph.add("AddV2", [Output("uses"), Output("waits")], name="y")
    assert EliminateIdentities().apply(graph_model(graph, "y")).applied == 1
    assert graph["uses"].controls == ["write"]
    assert graph["waits"].controls == ["write"]


def test_identities_that_mark_a_branch_of_tf1_stay() -> None:
    graph = Graph()
    x = graph.add("Placeholder", name="x", attrs={"dtype": tf.bool}).output()
    switch = graph.add("Switch", [x, x], name="switch")
    graph.add("Identity", [switch.output(1)], name="mark", attrs={"T": tf.bool})
    graph.add("Const", name="one", controls=["mark"])
    graph.add("Identity", [switch.output(0)], name="other", attrs={"T": tf.bool})
    graph.add("Merge", [Output("one"), Output("other")], name="y")
    result = EliminateIdentities().apply(graph_model(graph, "y"))
    assert result.applied == 0
    assert dict(result.refused) == {
        "mark": "nodes of a branch wait for it, expected none",
        "other": "it carries a branch into 'y', expected no control flow on both sides",
    }


def test_read_of_a_reference_stays(tf1_ref_model: Path) -> None:
    from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
    from graph_tools.readers import read_model

    model = read_model(tf1_ref_model)
    PruneUnreachable().apply(model)
    result = EliminateIdentities().apply(model)
    assert result.applied == 0
    assert {reason for _, reason in result.refused} == {"it reads a reference variable, expected a resource"}


def test_many_copies_of_control_inputs_are_not_made() -> None:
    graph = Graph()
    x = graph.add("Placeholder", name="x", attrs={"dtype": tf.float32}).output()
    writes = [graph.add("AssignVariableOp", name=f"w{i}").name for i in range(3)]
    passed = graph.add("Identity", [x], name="passed", controls=writes, attrs={"T": tf.float32}).output()
    users = [graph.add("Neg", [passed], attrs={"T": tf.float32}).output() for _ in range(3)]
    graph.add("AddN", users, name="y")
    result = EliminateIdentities().apply(graph_model(graph, "y"))
    assert result.refused == [("passed", "3 users would wait for its 3 control inputs, expected fewer")]
