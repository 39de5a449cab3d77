# SPDX-License-Identifier: Apache-2.0
"""Test whole models whose lookups run in NumPy, against answers that were computed by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import VerificationError
from graph_tools.readers import read_model
from graph_tools.verification.evaluate import evaluate
from load_tests.workloads.sparse_exports import Export, dense_weights, rows_for, tfplus_lookup, tfplus_table

KEYS = np.array([1, 2, 3], np.int64)
ROWS = np.array([[3, 0], [9, 1], [2, 0.5]], np.float32)


def test_lookup_whose_keys_come_from_another(tmp_path: Path) -> None:
    export = Export()
    ids = export.input("item")
    first = tfplus_lookup(export, tfplus_table(export, "first", KEYS, ROWS), ids)
    zero, one = export.const(np.array([0, 0], np.int32)), export.const(np.array([0, 1], np.int32))
    step = export.const(np.array([1, 1], np.int32))
    column = export.node(
        "StridedSlice",
        [first, zero, one, step],
        T="float32",
        Index="int32",
        begin_mask=1,
        end_mask=1,
        shrink_axis_mask=2,
    )
    next_ids = export.node("Cast", [column], SrcT="float32", DstT="int64")
    second = tfplus_lookup(export, tfplus_table(export, "second", KEYS, ROWS * 10), next_ids)
    path = export.finish(tmp_path / "model", [first, second], 4)
    found = evaluate(read_model(path), "serving_default", {"item": np.array([1, 2, 3, 4])})
    # 1 -> 3 -> (20, 5); 2 -> 9, which is absent; 3 -> 2 -> (90, 10); 4 is absent -> 0, which is absent.
    expected = np.array([[3, 0, 20, 5], [9, 1, 0, 0], [2, 0.5, 90, 10], [0, 0, 0, 0]], np.float32)
    np.testing.assert_array_equal(found["rows"], expected)
    score = 1 / (1 + np.exp(-(expected @ dense_weights(4))))
    np.testing.assert_allclose(found["score"], score, rtol=1e-6)


def test_variables_and_lookups_together(tmp_path: Path) -> None:
    export = Export()
    ids = export.input("item")
    rows = tfplus_lookup(export, tfplus_table(export, "emb", KEYS, ROWS), ids)
    scale = export.variable("scale", np.array([2.0, 4.0], np.float32))
    scaled = export.node("Mul", [rows, scale], T="float32")
    path = export.finish(tmp_path / "model", [scaled], 2)
    asked = np.array([3, 8])
    found = evaluate(read_model(path), "serving_default", {"item": asked})
    np.testing.assert_array_equal(found["rows"], rows_for(asked, KEYS, ROWS) * [2, 4])


def test_request_that_tensorflow_refuses(tmp_path: Path) -> None:
    export = Export()
    rows = tfplus_lookup(export, tfplus_table(export, "emb", KEYS, ROWS), export.input("item"))
    wrong = export.node("Mul", [rows, export.input("x", "float32", (None, None))], T="float32")
    model = read_model(export.finish(tmp_path / "model", [wrong], 2))
    with pytest.raises(VerificationError, match="INVALID_ARGUMENT"):
        evaluate(model, "serving_default", {"item": np.array([1, 2]), "x": np.ones((3, 5), np.float32)})
