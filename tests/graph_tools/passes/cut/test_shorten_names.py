# SPDX-License-Identifier: Apache-2.0
"""Names inside the graph become short; names that are known outside stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.passes.cut.shorten_names import ShortenNames
from helpers.graph_tools.pass_checks import checked, from_graph, rewritten, x_of


def source_of(path: Path) -> Path:
    def build(v1: Any, x: Any) -> Any:
        with v1.variable_scope("a_rather_long_scope"):
            kernel = v1.get_variable("kernel", initializer=np.ones((3, 2), np.float32))
            first = v1.nn.relu(v1.matmul(x, kernel), name="first")
            return first + v1.nn.relu(x[:, :2], name="Relu_1")

    return from_graph(path, build, 3)


def test_inner_nodes_are_named_after_their_ops(tmp_path: Path) -> None:
    model, result = checked(source_of(tmp_path), x_of(3), ShortenNames())
    names = set(model.graph.nodes)
    assert result.applied
    assert {"x", "y", "a_rather_long_scope/kernel", "Relu", "Relu_1", "MatMul"} <= names
    assert [name for name in names if "/" in name] == ["a_rather_long_scope/kernel"]


def test_tables_and_initializers_keep_their_names(string_model: Path, tmp_path: Path) -> None:
    model, _ = rewritten(string_model, ShortenNames())
    assert set(model.init) <= set(model.graph.nodes)
    assert set(model.assets) <= set(model.graph.nodes)
    table = model.graph.of("HashTableV2")[0]
    assert table.name != "HashTableV2"


def test_name_of_a_removed_node_is_not_taken(tmp_path: Path) -> None:
    from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
    from graph_tools.readers import read_model

    model = read_model(source_of(tmp_path))
    PruneUnreachable().apply(model)
    model.graph.removed["Relu"] = ("Relu", "test")
    ShortenNames().apply(model)
    assert "Relu" not in model.graph
    assert {"Relu_1", "Relu_2"} & set(model.graph.nodes)
