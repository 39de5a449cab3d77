# SPDX-License-Identifier: Apache-2.0
"""The mutable view of a graph, which knows every user of every node."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from graph_tools.errors import UnreadableError
from graph_tools.graph import Graph, Node, Output


def chain(*ops: str) -> Graph:
    graph = Graph()
    before: list[Output] = []
    for index, op in enumerate(ops):
        before = [graph.add(op, before, name=f"n{index}").output()]
    return graph


def users_as_recounted(graph: Graph) -> dict[str, dict[str, int]]:
    counted: dict[str, dict[str, int]] = {}
    for node in graph:
        for before in [*(source.node for source in node.inputs), *node.controls]:
            users = counted.setdefault(before, {})
            users[node.name] = users.get(node.name, 0) + 1
    return counted


def assert_consistent(graph: Graph) -> None:
    known = {name: users for name, users in graph._users.items() if users}
    assert known == users_as_recounted(graph)
    assert all(name == node.name for name, node in graph.nodes.items())


EDITS = ("add", "remove", "set_input", "set_inputs", "replace", "replace_control", "rename", "prune", "become")


@hypothesis.given(st.data())
def test_users_stay_right_under_any_edits(data: st.DataObject) -> None:
    graph = Graph()
    graph.add("Const", name="first")
    for _ in range(data.draw(st.integers(1, 25))):
        names = sorted(graph.nodes)
        pick = lambda names=names: data.draw(st.sampled_from(names))  # noqa: E731
        some = lambda names=names: data.draw(st.lists(st.sampled_from(names), max_size=3))  # noqa: E731
        node: Node = graph[pick()]
        outputs = [Output(name, data.draw(st.integers(0, 1))) for name in some()]
        edit = data.draw(st.sampled_from(EDITS))
        if edit == "add":
            graph.add("Op", outputs, name=pick(), controls=dict.fromkeys(some()))
        elif edit == "remove" and not [user for user in graph.users(node.name) if user is not node] and len(names) > 1:
            graph.remove(node.name, "test")
        elif edit == "set_input" and node.inputs:
            graph.set_input(node, data.draw(st.integers(0, len(node.inputs) - 1)), Output(pick()))
        elif edit == "set_inputs":
            graph.set_inputs(node, outputs, data.draw(st.none() | st.just(some())))
        elif edit == "replace":
            new = Output(pick(), 1)
            graph.replace(node.output(), new)
            assert new == node.output() or not graph.uses(node.output())
        elif edit == "replace_control":
            graph.replace_control(node.name, some())
        elif edit == "rename":
            new_name = graph.rename(node.name, "renamed")
            assert graph[new_name] is node
        elif edit == "prune":
            graph.prune([node.name], "test")
            assert set(graph.nodes) == graph.ancestors([node.name])
        elif edit == "become":
            graph.become(node, "Other", outputs, {})
        assert_consistent(graph)


def test_removal_needs_a_node_without_users() -> None:
    graph = chain("Const", "Neg", "Neg")
    with pytest.raises(ValueError, match="'n0': used by n1"):
        graph.remove("n0", "test")
    graph.remove("n2", "nobody needs it")
    assert graph.removed == {"n2": ("Neg", "nobody needs it")}


def test_names_of_removed_nodes_are_not_given_again() -> None:
    graph = chain("Const", "Neg")
    graph.remove("n1", "test")
    assert graph.add("Abs", name="n1").name == "n1_1"
    assert graph.add("Abs", name="n1").name == "n1_2"


def test_rename_keeps_ports_and_control_inputs() -> None:
    graph = Graph()
    split = graph.add("Split", name="split")
    user = graph.add("Add", [split.output(1), split.output(0)], name="user", controls=["split"])
    assert graph.rename("split", "parts") == "parts"
    assert user.inputs == [Output("parts", 1), Output("parts", 0)]
    assert user.controls == ["parts"]
    assert "split" not in graph
    assert_consistent(graph)


def test_rename_follows_a_node_that_uses_itself() -> None:
    graph = Graph()
    loop = graph.add("NextIteration", name="loop")
    graph.set_inputs(loop, [loop.output()])
    graph.rename("loop", "other")
    assert loop.inputs == [Output("other")]
    assert_consistent(graph)


def test_every_edit_is_a_new_revision() -> None:
    graph = chain("Const", "Neg", "Abs")
    for edit in (
        lambda: graph.set_input(graph["n2"], 0, Output("n0")),
        lambda: graph.set_attr(graph["n0"], "dtype", "float32"),
        lambda: graph.become(graph["n1"], "Exp", [Output("n0")], {}),
        lambda: graph.rename("n1", "m1"),
        lambda: graph.remove("m1", "test"),
        lambda: graph.add("Const"),
    ):
        before = graph.revision
        edit()
        assert graph.revision > before


def test_order_puts_inputs_first_whatever_the_order_of_the_nodes() -> None:
    graph = Graph()
    graph.add("Const", name="late")
    graph.add("Const", name="early")
    graph.set_inputs(graph["late"], [Output("early")])
    assert [node.name for node in graph.ordered()] == ["early", "late"]


def test_loops_of_tf1_are_ordered() -> None:
    graph = Graph()
    enter = graph.add("Enter", name="enter")
    merge = graph.add("Merge", [enter.output(), enter.output()], name="merge")
    following = graph.add("NextIteration", [merge.output()], name="next")
    graph.set_input(merge, 1, following.output())
    order = [node.name for node in graph.ordered()]
    assert order.index("next") < order.index("merge")
    assert sorted(order) == ["enter", "merge", "next"]


def graph_def(*nodes: tuple[str, list[str]]) -> Any:
    from tensorflow.core.framework import graph_pb2

    made = graph_pb2.GraphDef()
    for name, inputs in nodes:
        made.node.add(name=name, op="Op", input=inputs)
    return made


def test_proto_of_a_graph_reads_back() -> None:
    graph = Graph.from_graph_def(graph_def(("a", []), ("b", ["a:2", "a", "^a"])))
    assert graph["b"].inputs == [Output("a", 2), Output("a")]
    assert graph["b"].controls == ["a"]
    assert list(graph.to_graph_def().node[1].input) == ["a:2", "a", "^a"]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([("a", []), ("a", [])], "file: node 'a' is there twice"),
        ([("a", ["b"])], "file: node 'a' has the input 'b', expected a node"),
        ([("a", ["^b"])], "file: node 'a' has the input 'b', expected a node"),
    ],
)
def test_damaged_graph_is_refused(nodes: list[tuple[str, list[str]]], message: str) -> None:
    with pytest.raises(UnreadableError, match=message):
        Graph.from_graph_def(graph_def(*nodes), "file")
