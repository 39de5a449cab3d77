# SPDX-License-Identifier: Apache-2.0
"""Parts of a graph that are extracted to run them."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from graph_tools.graph import Graph
from graph_tools.graph.extract import extract


def made() -> Graph:
    """a -> double -> sum, with b after `late`, and a node of an op that TensorFlow does not know behind a."""
    graph = Graph()
    strange = graph.add("Nobody>Knows", name="strange")
    a = graph.add("Cast", [strange.output()], name="a", attrs={"SrcT": tf.int64, "DstT": tf.float32})
    late = graph.add("NoOp", name="late", controls=["strange"])
    b = graph.add_const(np.float32(3.0), "b")
    graph.set_inputs(graph["b"], [], [late.name])
    total = graph.add("AddV2", [a.output(), b], name="sum", attrs={"T": tf.float32})
    graph.add("Neg", [total.output()], name="unused", attrs={"T": tf.float32})
    return graph


def test_only_what_is_needed_comes_along() -> None:
    graph = made()
    part = extract(graph, ["sum"], {"a": tf.float32}, controls=False)
    assert sorted(node.name for node in part.node) == ["a", "b", "sum"]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(part, name="")
        assert session.run("sum:0", {"a:0": 4.0}) == 7.0
    assert len(graph) == 6
    assert graph["b"].controls == ["late"]


def test_controls_bring_what_runs_before() -> None:
    assert "strange" in {node.name for node in extract(made(), ["sum"], {"a": tf.float32}).node}
