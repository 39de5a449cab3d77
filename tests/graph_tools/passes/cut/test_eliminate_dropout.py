# SPDX-License-Identifier: Apache-2.0
"""Dropout that drops nothing is removed; dropout that is still on is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graph_tools.passes.cut.eliminate_dropout import EliminateDropout
from graph_tools.passes.cut.eliminate_identities import EliminateIdentities
from graph_tools.passes.cut.eliminate_noop_reshapes import EliminateNoopReshapes
from graph_tools.passes.cut.fold_constants import FoldConstants
from graph_tools.rewriting.protocol import Pass
from helpers.graph_tools.pass_checks import checked, from_graph, ops_of, rewritten, x_of

KEPT = {"Placeholder", "Relu", "Identity"}


def before() -> list[Pass]:
    return [EliminateIdentities(), FoldConstants()]


def floor_mask(v1: Any, x: Any, keep: Any, shape: Any = None) -> Any:
    """As TF 1.13 and older write dropout."""
    shape = v1.shape(x) if shape is None else shape
    scaled = v1.raw_ops.RandomUniform(shape=shape, dtype=v1.float32) * (1.0 - v1.constant(0.0)) + 0.0
    return (x / keep) * v1.floor(keep + scaled)


def cast_mask(v1: Any, x: Any, rate: Any) -> Any:
    """As TF 1.14 to 2.3 write it."""
    uniform = v1.raw_ops.RandomUniform(shape=v1.shape(x), dtype=v1.float32)
    return (x * (1.0 / (1.0 - rate))) * v1.cast(uniform >= rate, v1.float32)


def select_mask(v1: Any, x: Any, rate: Any) -> Any:
    """As newer ones write it."""
    uniform = v1.raw_ops.RandomUniform(shape=v1.shape(x), dtype=v1.float32)
    return v1.raw_ops.SelectV2(condition=uniform >= rate, t=x * (1.0 / (1.0 - rate)), e=0.0)


@pytest.mark.parametrize("mask", [floor_mask, cast_mask, select_mask])
def test_rate_that_nobody_feeds_is_zero(tmp_path: Path, mask: Any) -> None:
    def build(v1: Any, x: Any) -> Any:
        rate = v1.placeholder_with_default(1.0 if mask is floor_mask else 0.0, [], name="rate")
        return v1.nn.relu(mask(v1, v1.nn.relu(x), rate))

    source = from_graph(tmp_path, build, 4)
    model, result = checked(source, x_of(4), *before(), EliminateDropout())
    assert result.applied == 1
    assert not [op for op in ops_of(model) if "Random" in op]
    assert ("RandomUniform", "only a dropout of rate 0 needed it") in model.graph.removed.values()
    model, _ = checked(source, x_of(4), *before(), EliminateDropout(), EliminateNoopReshapes())
    assert ops_of(model) == KEPT


def test_mask_that_broadcasts_along_an_axis_is_removed(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.nn.relu(floor_mask(v1, v1.nn.relu(x), 1.0, v1.constant([1, 4])))

    _, result = checked(from_graph(tmp_path, build, 4), x_of(4), *before(), EliminateDropout())
    assert result.applied == 1


@pytest.mark.parametrize("mask", [floor_mask, cast_mask, select_mask])
def test_dropout_that_is_on_is_reported(tmp_path: Path, mask: Any) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.nn.relu(mask(v1, x, v1.constant(0.75 if mask is floor_mask else 0.25)))

    model, results = rewritten(from_graph(tmp_path, build, 4), *before(), EliminateDropout())
    assert results[-1].applied == 0
    assert [reason for _, reason in results[-1].refused] == [
        "the rate of this dropout is 0.25, expected 0: its answers are random"
    ]
    assert "RandomUniform" in ops_of(model)


def test_rate_that_clients_feed_is_reported(tmp_path: Path) -> None:
    from helpers.models.idiom_models import export_graph

    def build(v1: Any) -> Any:
        x, rate = v1.placeholder(v1.float32, [None, 4]), v1.placeholder(v1.float32, [])
        return {"x": x, "rate": rate}, {"y": v1.identity(cast_mask(v1, x, rate))}

    _, results = rewritten(export_graph(tmp_path / "source", build), *before(), EliminateDropout())
    assert "computed at every request" in results[-1].refused[0][1]


def test_mask_of_another_shape_stays(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.nn.relu(floor_mask(v1, v1.nn.relu(x), 1.0, v1.constant([3, 1, 4])))

    _, result = checked(from_graph(tmp_path, build, 4), x_of(4), *before(), EliminateDropout())
    assert [reason for _, reason in result.refused] == [
        "the mask may be larger than what it is applied to, expected its shape"
    ]
