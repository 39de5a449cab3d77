# SPDX-License-Identifier: Apache-2.0
"""Test the evaluation of parts of a graph that do not depend on a request."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_tools.graph import Output
from graph_tools.model import Model
from graph_tools.readers import read_model
from graph_tools.readers.families.computed import NotConstantError, computed_value, is_random, same_row
from load_tests.workloads.sparse_exports import Export


def read(export: Export, path: Path) -> Model:
    kept = export.node("Identity", [export.input("x", "float32", (None, 2))], T="float32")
    return read_model(export.finish(path / "model", [kept], 2))


def test_computed_from_constants_and_saved_variables(tmp_path: Path) -> None:
    export = Export()
    variable = export.variable("v", np.array([1, 2], np.float32))
    filled = export.node(
        "Fill", [export.const(np.array([3, 2], np.int32)), export.const(np.float32(4))], T="float32", index_type="int32"
    )
    product = export.node("Mul", [filled, variable], T="float32")
    found = computed_value(read(export, tmp_path), Output(product))
    np.testing.assert_array_equal(found, [[4, 8]] * 3)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda e: e.input("fed", "float32", ()), "node 'fed' is fed by the request"),
        (lambda e: e.node("RandomUniform", [e.const(np.array([2], np.int32))], "drawn", T="int32", dtype="float32"),
         "node 'drawn' draws it at random"),
        (lambda e: e.node("Nobody>Knows", [e.const(np.float32(1))], "strange", T="float32"),
         "node 'strange' is of the op 'Nobody>Knows'"),
    ],
)  # fmt: skip
def test_absent_values_that_are_not_constant_are_explained(tmp_path: Path, make: object, reason: str) -> None:
    export = Export()
    node = make(export)  # type: ignore[operator]
    doubled = export.node("AddV2", [node, node], T="float32")
    with pytest.raises(NotConstantError, match=reason):
        computed_value(read(export, tmp_path), Output(doubled))


def test_variable_that_was_not_saved(tmp_path: Path) -> None:
    export = Export()
    export.node("VarHandleOp", name="v", dtype="float32", shape=(2,))
    value = export.node("ReadVariableOp", ["v"], "value", dtype="float32")
    with pytest.raises(NotConstantError, match="node 'value' has no saved value"):
        computed_value(read(export, tmp_path), Output(value))


def test_a_constant_row_for_any_number_of_keys_is_the_absent_value(tmp_path: Path) -> None:
    export = Export()
    x = export.input("x", "float32", (None, 2))
    size = export.node("Size", [x], T="float32", out_type="int32")
    two = export.const(np.int32(2))
    dims = export.node("Pack", [size, two], N=2, T="int32", axis=0)
    row = export.const(np.array([5, 6], np.float32))
    tiled = export.node("BroadcastTo", [row, dims], T="float32", Tidx="int32")
    number = export.node("Cast", [size], SrcT="int32", DstT="float32")
    scaled = export.node("Mul", [tiled, number], T="float32")
    counted = export.node("Mul", [x, tiled], T="float32")
    model = read(export, tmp_path)
    found = same_row(model, Output(tiled), 2)
    assert found is not None
    assert found.tolist() == [5, 6]
    assert same_row(model, Output(scaled), 2) is None
    assert same_row(model, Output(counted), 2) is None


def test_one_number_may_give_the_default_of_a_whole_row(tmp_path: Path) -> None:
    export = Export()
    one = export.const(np.float32(0.5))
    found = same_row(read(export, tmp_path), Output(one), 3)
    assert found is not None
    assert found.tolist() == [0.5] * 3


@pytest.mark.parametrize(
    ("op", "random"),
    [("RandomUniform", True), ("StatelessRandomNormalV2", True), ("TruncatedNormal", True),
     ("StatelessTruncatedNormalV2", True), ("Fill", False), ("Range", False)],
)  # fmt: skip
def test_random_ops(op: str, random: bool) -> None:
    assert is_random(op) is random
