# SPDX-License-Identifier: Apache-2.0
"""What goes with nodes that nothing uses any more, and what stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graph_tools.graph import Graph, Node, Output
from graph_tools.model import Model
from graph_tools.rewriting.replace import replace_output
from graph_tools.rewriting.sweep import sweep
from graph_tools.tensors import ArrayTensor

FLOAT = {"T": np.float32}


def _model() -> tuple[Model, Output]:
    graph = Graph()
    x = graph.add("Placeholder", name="x", attrs={"dtype": np.float32}).output()
    return Model(Path("source"), "GraphDef", graph, {}, init=["x"]), x


def _read(model: Model) -> Node:
    """Add the read of a variable that holds a number."""
    handle = model.graph.add("VarHandleOp", name="w", attrs={"dtype": np.float32})
    model.variables["w"] = ArrayTensor(np.ones(1, np.float32))
    return model.graph.add("ReadVariableOp", [handle.output()], name="w/read", attrs={"dtype": np.float32})


def test_replacing_the_only_read_of_a_variable_forgets_the_variable() -> None:
    model, x = _model()
    read = _read(model)
    model.graph.add("Neg", [read.output()], name="y", attrs=FLOAT)
    replace_output(model, read.output(), x, np.float32, "a test")
    assert (set(model.graph.nodes), model.variables) == ({"x", "y"}, {})


def test_sweep_keeps_a_variable_that_something_else_reads() -> None:
    model, _ = _model()
    read = _read(model)
    model.graph.add("ReadVariableOp", [Output("w")], name="other", attrs={"dtype": np.float32})
    assert sweep(model, [read.name], "a test") == 1
    assert list(model.variables) == ["w"]


def _waits(model: Model, x: Output, source: Node) -> Node:
    """Let a node run after one that is made from `source`."""
    after = model.graph.add("Identity", [source.output()], name="after", attrs=FLOAT)
    return model.graph.add("Neg", [x], name="y", attrs=FLOAT, controls=[after.name])


def test_node_for_which_others_only_wait_is_removed_with_give_way() -> None:
    for give_way in (False, True):
        model, x = _model()
        waits = _waits(model, x, model.graph.add("Abs", [x], name="abs", attrs=FLOAT))
        assert sweep(model, ["after"], "a test", give_way=give_way) == (2 if give_way else 0)
        assert waits.controls == ([] if give_way else ["after"])


def test_node_that_anchors_a_branch_stays_with_give_way() -> None:
    model, x = _model()
    taken = model.graph.add("Placeholder", name="taken", attrs={"dtype": np.bool_}).output()
    waits = _waits(model, x, model.graph.add("Switch", [x, taken], name="switch", attrs=FLOAT))
    assert sweep(model, ["after"], "a test", give_way=True) == 0
    assert waits.controls == ["after"]


def test_node_with_an_effect_stays_with_give_way() -> None:
    model, x = _model()
    printed = model.graph.add("Print", [x, x], name="print", attrs=FLOAT | {"U": [np.float32]})
    waits = _waits(model, x, printed)
    assert sweep(model, ["after"], "a test", give_way=True) == 1
    assert waits.controls == ["print"]
