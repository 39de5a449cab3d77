# SPDX-License-Identifier: Apache-2.0
"""Nodes that change neither shape nor elements are removed; other nodes stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.passes.cut.eliminate_noop_reshapes import EliminateNoopReshapes
from helpers.graph_tools.pass_checks import checked, from_graph, ops_of, x_of

KEPT = {"Placeholder", "Relu", "Identity"}


def raw(v1: Any) -> Any:
    return v1.raw_ops


NOOPS = {
    "reshape": lambda v1, x: v1.reshape(x, [-1, 4]),
    "reshape_computed": lambda v1, x: v1.reshape(x, [v1.shape(x)[0], 4]),
    "reshape_there_and_back": lambda v1, x: v1.reshape(v1.reshape(x, [-1, 2, 2]), [-1, 4]),
    "expand_squeeze": lambda v1, x: v1.squeeze(v1.expand_dims(x, 1), 1),
    "squeeze_expand": lambda v1, x: v1.squeeze(v1.expand_dims(v1.expand_dims(x, 1), 0), [0, 2]),
    "transpose": lambda v1, x: v1.transpose(x, [0, 1]),
    "transpose_twice": lambda v1, x: v1.transpose(v1.transpose(x, [1, 0]), [1, 0]),
    "cast": lambda v1, x: raw(v1).Cast(x=x, DstT=v1.float32),
    "pad": lambda v1, x: v1.pad(x, [[0, 0], [0, 0]]),
    "tile": lambda v1, x: v1.tile(x, [1, 1]),
    "slice": lambda v1, x: v1.slice(x, [0, 0], [-1, 4]),
    "strided_slice": lambda v1, x: x[:, 0:4],
    "strided_slice_open": lambda v1, x: x[:, :],
    "add_n": lambda v1, x: raw(v1).AddN(inputs=[x]),
    "split": lambda v1, x: raw(v1).Split(axis=1, value=x, num_split=1)[0],
    "mul": lambda v1, x: x * v1.ones([1, 4]),
    "mul_left": lambda v1, x: v1.constant(1.0) * x,
    "div": lambda v1, x: x / 1.0,
    "add": lambda v1, x: v1.zeros([4]) + x,
    "sub": lambda v1, x: x - 0.0,
    "bias": lambda v1, x: v1.nn.bias_add(x, v1.zeros([4])),
}


@pytest.mark.parametrize("name", NOOPS)
def test_nodes_that_change_nothing_are_removed(tmp_path: Path, name: str) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.nn.relu(NOOPS[name](v1, v1.nn.relu(x)))

    model, result = checked(from_graph(tmp_path, build, 4), x_of(4), EliminateNoopReshapes())
    assert result.applied
    assert ops_of(model) == KEPT


OTHERS = {
    "reshape": lambda v1, x: v1.reshape(x, [-1, 2]),
    "expand": lambda v1, x: v1.expand_dims(x, 1),
    "transpose": lambda v1, x: v1.transpose(x, [1, 0]),
    "cast": lambda v1, x: v1.cast(x, v1.float64),
    "pad": lambda v1, x: v1.pad(x, [[0, 0], [0, 1]]),
    "tile": lambda v1, x: v1.tile(x, [1, 2]),
    "slice": lambda v1, x: v1.slice(x, [0, 0], [-1, 3]),
    "slice_from": lambda v1, x: v1.slice(x, [0, 1], [-1, -1]),
    "strided_slice": lambda v1, x: x[:, 1:4],
    "strided_slice_step": lambda v1, x: x[:, ::2],
    "strided_slice_batch": lambda v1, x: x[:2],
    "reverse": lambda v1, x: x[::-1],
    "mul": lambda v1, x: x * 2.0,
    "mul_broadcast": lambda v1, x: x * v1.ones([1, 1, 4]),
    "mul_broadcast_rows": lambda v1, x: x[:1] * v1.ones([2, 4]),
    "sub_left": lambda v1, x: 0.0 - x,
    "div_left": lambda v1, x: 1.0 / x,
    "add": lambda v1, x: x + v1.constant([0.0, 0.0, 0.0, 1e-9]),
    "broadcast": lambda v1, x: v1.broadcast_to(x[:1], [2, 4]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_nodes_that_may_change_something_stay(tmp_path: Path, name: str) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.nn.relu(OTHERS[name](v1, v1.nn.relu(x)))

    model, result = checked(from_graph(tmp_path, build, 4), x_of(4), EliminateNoopReshapes())
    assert result.applied == 0
    assert ops_of(model) > KEPT


def test_reshape_with_two_unknown_sizes_stays(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        turned = v1.shape(v1.transpose(x))
        return v1.nn.relu(v1.reshape(v1.nn.relu(x), turned))

    _, result = checked(from_graph(tmp_path, build, None), x_of(4), EliminateNoopReshapes())
    assert result.applied == 0


def test_reshape_of_a_reshape_becomes_one_reshape(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.nn.relu(v1.reshape(v1.reshape(x, [-1, 2, 4]), [-1, 2]))

    model, result = checked(from_graph(tmp_path, build, 2, 2, 2), x_of(2, 2, 2), EliminateNoopReshapes())
    assert result.applied == 1
    assert len(model.graph.of("Reshape")) == 1
    assert ("Reshape", "Reshape: reshaped again right after") in model.graph.removed.values()


def test_output_keeps_its_node(tmp_path: Path) -> None:
    from helpers.models.idiom_models import export_graph

    def build(v1: Any) -> Any:
        x = v1.placeholder(v1.float32, [None, 4], name="x")
        return {"x": x}, {"y": v1.multiply(x, 1.0, name="y")}

    model, result = checked(export_graph(tmp_path / "source", build), x_of(4), EliminateNoopReshapes())
    assert result.applied == 0
    assert model.graph["y"].op == "Mul"


def test_node_that_waits_stays(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        waiting = v1.constant(1.0)
        counter = v1.get_variable("counter", initializer=np.float32(0))
        with v1.control_dependencies([v1.assign_add(counter, 1.0)]):
            return v1.nn.relu(v1.multiply(x, waiting, name="waits"))

    _, result = checked(from_graph(tmp_path, build, 4), x_of(4), EliminateNoopReshapes())
    assert ("waits", "it waits for other nodes, expected none") in result.refused
