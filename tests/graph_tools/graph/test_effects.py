# SPDX-License-Identifier: Apache-2.0
"""The effects of nodes and of the functions that they may run."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from graph_tools.graph import Graph, Node, functions_of, has_effect


def graph_of(function: Any) -> Graph:
    concrete = tf.function(function).get_concrete_function(tf.TensorSpec([None], tf.float32))
    return Graph.from_graph_def(concrete.graph.as_graph_def())


def branch(graph: Graph) -> Node:
    return next(node for node in graph if node.op in {"If", "StatelessIf"})


def test_branch_with_a_write_has_an_effect() -> None:
    variable = tf.Variable(1.0)
    graph = graph_of(lambda x: tf.cond(x[0] > 0, lambda: variable.assign_add(1.0), lambda: tf.constant(0.0)))
    assert has_effect(graph, branch(graph))
    assert len(functions_of(branch(graph).attrs)) == 2


def test_branch_that_only_reads_has_none() -> None:
    variable = tf.Variable(1.0)
    graph = graph_of(lambda x: tf.cond(x[0] > 0, lambda: variable + 1.0, lambda: tf.constant(0.0)))
    assert branch(graph).op == "If"
    assert not has_effect(graph, branch(graph))


def test_effects_are_found_in_functions_of_functions() -> None:
    variable = tf.Variable(1.0)

    def inner(x: Any) -> Any:
        return tf.cond(x[0] > 1, lambda: variable.assign(2.0), lambda: tf.constant(0.0))

    graph = graph_of(lambda x: tf.cond(x[0] > 0, lambda: inner(x), lambda: tf.constant(0.0)))
    assert has_effect(graph, branch(graph))


def test_missing_function_counts_as_an_effect() -> None:
    graph = graph_of(lambda x: tf.cond(x[0] > 0, lambda: x, lambda: -x))
    node = branch(graph)
    graph.library.clear()
    assert has_effect(graph, node)


@pytest.mark.parametrize(("op", "effect"), [("Assert", True), ("MatMul", False), ("HashTableV2", False)])
def test_effects_of_single_nodes(op: str, effect: bool) -> None:
    assert has_effect(Graph(), Node("n", op)) is effect
