# SPDX-License-Identifier: Apache-2.0
"""Reference variables and tables of TF 1 become resources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.graph import Graph
from graph_tools.model import Model
from graph_tools.passes.cut.use_resource_variables import UseResourceVariables
from graph_tools.tensors import ArrayTensor
from helpers.graph_tools.pass_checks import checked, from_graph, ops_of, rewritten, x_of


def reference(v1: Any, name: str, value: Any) -> Any:
    return v1.get_variable(name, initializer=np.asarray(value, np.float32), use_resource=False)


def test_variables_become_resources(tf1_ref_model: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.symlink_to(tf1_ref_model)
    model, result = checked(source, x_of(3), UseResourceVariables())
    assert result.applied == 2
    assert ops_of(model) == {"VarHandleOp", "ReadVariableOp", "Placeholder", "MatMul", "AddV2"}
    assert set(model.variables) == {"w", "b"}


def test_reference_may_be_gathered_from(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        rows = reference(v1, "rows", np.arange(12).reshape(4, 3))
        ids = v1.cast(v1.abs(x[:, 0]), v1.int64) % 4
        raw = v1.raw_ops.GatherV2(params=rows._ref(), indices=ids, axis=0) + v1.raw_ops.Neg(x=rows._ref())[0]
        return raw + v1.nn.embedding_lookup(rows, ids)

    model, result = checked(from_graph(tmp_path, build, 3), x_of(3), UseResourceVariables())
    assert result.applied == 1
    assert not model.graph.of("VariableV2")


def test_variable_that_is_assigned_while_served_stays(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        counter = reference(v1, "counter", 0.0)
        with v1.control_dependencies([v1.assign_add(counter, 1.0)]):
            return x + 1.0

    model, results = rewritten(from_graph(tmp_path, build, 3), UseResourceVariables())
    assert results[-1].refused == [("counter", "it is assigned while it is served, expected one that is only read")]
    assert model.graph["counter"].op == "VariableV2"


def test_variable_whose_reference_is_needed_stays(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        steps = v1.get_variable("steps", initializer=np.int64(0), use_resource=False)
        return x + v1.cast(v1.raw_ops.CountUpTo(ref=steps._ref(), limit=10, name="count"), v1.float32)

    _, results = rewritten(from_graph(tmp_path, build, 3), UseResourceVariables())
    assert results[-1].refused == [
        ("steps", "'count' (CountUpTo) uses the reference, expected a read or an assignment")
    ]


def tables(user: str) -> Model:
    graph = Graph()
    types = {"key_dtype": "string", "value_dtype": "int64"}
    table = graph.add("HashTable", name="table", attrs=types).output()
    x = graph.add("Placeholder", attrs={"dtype": "string"}).output()
    graph.add(user, [table, x, x], name="user", attrs={"Tin": "string", "Tout": "int64"})
    return Model(Path("m"), "GraphDef", graph, {}, variables={"w": ArrayTensor(np.zeros(1))})


def test_tables_become_resources() -> None:
    model = tables("LookupTableFind")
    assert UseResourceVariables().apply(model).applied == 1
    assert [node.op for node in model.graph] == ["HashTableV2", "Placeholder", "LookupTableFindV2"]
    assert model.graph["table"].attrs["shared_name"].s == b"table"
    assert UseResourceVariables().apply(model).applied == 0


@pytest.mark.parametrize("user", ["RefIdentity", "Identity"])
def test_table_whose_reference_is_passed_on_stays(user: str) -> None:
    model = tables(user)
    result = UseResourceVariables().apply(model)
    assert result.refused == [("table", f"'user' ({user}) uses the reference to the table, expected a lookup")]
    assert model.graph["table"].op == "HashTable"
