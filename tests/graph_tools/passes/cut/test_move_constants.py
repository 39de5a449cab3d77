# SPDX-License-Identifier: Apache-2.0
"""Large constants are moved out of the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.passes.cut.move_constants import MoveConstants
from helpers.graph_tools.pass_checks import checked, from_graph, x_of


def source_of(path: Path) -> Path:
    def build(v1: Any, x: Any) -> Any:
        random = np.random.default_rng(0)
        large, small = (random.normal(size=(size, 8)).astype(np.float32) for size in (1000, 10))
        ids = v1.cast(v1.abs(x[:, 0]), v1.int32)
        return v1.gather(v1.constant(large, name="large"), ids) + v1.gather(v1.constant(small, name="small"), ids)

    return from_graph(path, build, 3)


def test_large_constant_becomes_a_variable(tmp_path: Path) -> None:
    model, result = checked(source_of(tmp_path), x_of(3), MoveConstants(limit=1 << 12))
    assert result.applied == 1
    assert [(tensor.shape, tensor.dtype) for tensor in model.variables.values()] == [((1000, 8), np.float32)]
    assert model.graph["large"].op == "ReadVariableOp"
    assert model.graph["small"].op == "Const"
    assert len(model.graph.to_graph_def().SerializeToString()) < 3000


def test_smaller_constants_move_too_if_all_together_are_large(tmp_path: Path) -> None:
    _, result = checked(source_of(tmp_path), x_of(3), MoveConstants(limit=1 << 12, total=1 << 10))
    assert result.applied == 2


def test_small_constants_stay_in_the_graph(tmp_path: Path) -> None:
    _, result = checked(source_of(tmp_path), x_of(3), MoveConstants())
    assert result.applied == 0


def test_constants_of_initializers_stay(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        words = v1.constant([str(i) for i in range(1000)], name="words")
        filler = v1.lookup.KeyValueTensorInitializer(words, v1.range(1000, dtype=v1.int64))
        table = v1.lookup.StaticHashTable(filler, -1)
        return table.lookup(v1.as_string(v1.cast(x[:, 0] * 10.0, v1.int32)))

    source = from_graph(tmp_path, build, 3)
    _, result = checked(source, x_of(3), MoveConstants(limit=100))
    assert ("words", "an initializer uses it, which may run before variables are restored") in result.refused


@pytest.mark.parametrize("name", ["words"])
def test_large_strings_become_variables(tmp_path: Path, name: str) -> None:
    def build(v1: Any, x: Any) -> Any:
        words = v1.constant([f"word {i}" for i in range(1000)], name=name)
        return v1.gather(words, v1.cast(v1.abs(x[:, 0]), v1.int32))

    model, result = checked(from_graph(tmp_path, build, 3), x_of(3), MoveConstants(limit=100))
    assert result.applied == 1
    assert model.variables[f"{name}/value"].shape == (1000,)
