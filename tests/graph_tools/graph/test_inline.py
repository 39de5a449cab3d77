# SPDX-License-Identifier: Apache-2.0
"""Calls are replaced by the bodies of their functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.errors import UnreadableError
from graph_tools.graph import Graph, Output, inline_calls


def traced(function: Any, *specs: Any) -> Graph:
    """Trace a function and return its graph; calls in it stay calls."""
    concrete = tf.function(function).get_concrete_function(*specs)
    return Graph.from_graph_def(concrete.graph.as_graph_def())


def run(graph: Graph, fetch: list[str], feeds: dict[str, Any]) -> list[Any]:
    with tf.Graph().as_default() as imported:
        tf.graph_util.import_graph_def(graph.to_graph_def(), name="")
        with tf.compat.v1.Session(graph=imported) as session:
            found: list[Any] = session.run(fetch, feeds)
            return found


VECTOR = tf.TensorSpec([None], tf.float32, name="x")


def test_nested_calls_are_inlined() -> None:
    @tf.function
    def inner(x: Any) -> Any:
        return x * 2.0

    @tf.function
    def outer(x: Any) -> Any:
        return inner(x) + inner(x + 1.0)

    graph = traced(lambda x: tf.identity(outer(x), name="y"), VECTOR)
    assert inline_calls(graph) == 3
    assert not [node for node in graph if "Call" in node.op]
    np.testing.assert_array_equal(run(graph, ["y:0"], {"x:0": [1.0, 2.0]})[0], [6.0, 10.0])


def test_call_that_is_kept_gives_every_output_under_its_name() -> None:
    @tf.function
    def several(x: Any) -> Any:
        return x + 1.0, tf.shape(x), x - 1.0

    graph = traced(lambda x: [tf.identity(result) for result in several(x)], VECTOR)
    call = next(node.name for node in graph if "Call" in node.op)
    inline_calls(graph, frozenset([call]))
    assert graph[call].op == "IdentityN"
    plus, shape, minus = run(graph, [f"{call}:{port}" for port in range(3)], {"x:0": [1.0, 2.0]})
    np.testing.assert_array_equal(plus, [2.0, 3.0])
    np.testing.assert_array_equal(shape, [2])
    np.testing.assert_array_equal(minus, [0.0, 1.0])


def test_what_ran_after_the_call_runs_after_its_effects() -> None:
    variable = tf.Variable(1.0)

    @tf.function
    def count() -> None:
        variable.assign_add(1.0)

    def ask(x: Any) -> Any:
        count()
        return x + variable.read_value()

    graph = traced(ask, VECTOR)
    inline_calls(graph)
    added, read = graph.of("AssignAddVariableOp")[0], graph.of("ReadVariableOp")[0]
    assert added.name in graph.ancestors([read.name])


def test_body_waits_for_what_the_call_waited_for() -> None:
    @tf.function
    def constant() -> Any:
        return tf.constant(4.0)

    graph = traced(lambda x: x + constant(), VECTOR)
    call = next(node for node in graph if "Call" in node.op)
    waited = graph.add("NoOp", name="waited")
    graph.set_inputs(call, call.inputs, ["waited"])
    inline_calls(graph)
    assert any(waited.name in node.controls for node in graph if node.op == "Const")


def test_branches_stay_functions() -> None:
    graph = traced(lambda x: tf.cond(tf.reduce_sum(x) > 0.0, lambda: x, lambda: -x), VECTOR)
    inline_calls(graph)
    assert [node.op for node in graph if "If" in node.op]
    assert graph.library


def calling(name: str, target: str) -> Any:
    from tensorflow.core.framework import function_pb2

    function = function_pb2.FunctionDef()
    function.signature.name = name
    call = function.node_def.add(name="call", op="PartitionedCall")
    call.attr["f"].func.name = target
    for key in ("Tin", "Tout"):
        call.attr[key].list.SetInParent()
    return function


def graph_calling(target: str, *functions: Any) -> Graph:
    graph = Graph()
    graph.library = {function.signature.name: function for function in functions}
    node = graph.add("PartitionedCall", name="start", attrs={"Tin": [], "Tout": []})
    func = calling("unused", target).node_def[0].attr["f"]
    graph.set_attr(node, "f", func)
    return graph


def test_cycle_of_functions_is_refused() -> None:
    graph = graph_calling("one", calling("one", "two"), calling("two", "one"))
    with pytest.raises(UnreadableError, match="function 'one': calls itself through one → two, expected no cycle"):
        inline_calls(graph)


def test_function_that_calls_itself_is_refused() -> None:
    with pytest.raises(UnreadableError, match="'one': calls itself"):
        inline_calls(graph_calling("one", calling("one", "one")))


def test_missing_function_is_refused() -> None:
    graph = graph_calling("one", calling("one", "absent"))
    with pytest.raises(UnreadableError, match="calls 'absent', expected a function of the library"):
        inline_calls(graph)


def test_call_with_the_wrong_number_of_inputs_is_refused() -> None:
    graph = graph_calling("one", calling("one", "one"))
    graph.set_inputs(graph["start"], [Output(graph.add("Const", name="extra").name)])
    with pytest.raises(UnreadableError, match="'start': 1 inputs, expected 0"):
        inline_calls(graph)


def test_unknown_op_in_a_body_is_refused() -> None:
    function = calling("one", "one")
    function.node_def[0].op = "NobodyKnows"
    with pytest.raises(UnreadableError, match="node 'call' is of the op 'NobodyKnows'"):
        inline_calls(graph_calling("one", function))
