# SPDX-License-Identifier: Apache-2.0
"""Test models with sparse lookups that TensorFlow does not have, against equal native graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graph_tools import verify
from graph_tools.graph import Output
from graph_tools.graph.sparse_lookup import add_lookup
from graph_tools.model import Model
from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.readers import read_model
from graph_tools.tensors import ArrayTensor
from graph_tools.verification.request import Request
from graph_tools.verification.staged import StagedRunner
from helpers.models import verify_models

ROWS = np.array([[0.5, 1.0], [0.25, -2.0], [3.0, 0.125], [0.0, 0.0], [1.5, 2.5], [9.0, -9.0]], np.float32)


def _sparse_form(path: Path, absent: np.ndarray | None = ROWS[-1:]) -> Model:
    """The same as `verify_models.build_lookup`, as the reader of a training system gives it."""
    import tensorflow as tf

    model = read_model(path)
    graph = model.graph
    words = np.array([word.encode() for word in verify_models.WORDS], object)
    parts = [Part(ArrayTensor(words[i::2]), ArrayTensor(ROWS[:-1][i::2])) for i in (0, 1)]
    table = SparseTable("words", "test", np.dtype(object), 2, np.dtype(np.float32), parts, Absent(absent, "test"))
    model.sparse_tables["words"] = table
    (gather,) = graph.of("ResourceGather", "GatherV2")
    (find,) = graph.of("LookupTableFindV2")
    lookup = add_lookup(graph, "words", find.inputs[1], tf.string, 2, tf.float32)
    graph.replace(Output(gather.name), lookup.output())
    return model


def test_sparse_source_equals_its_native_form(tmp_path: Path) -> None:
    b = verify_models.build_lookup(tmp_path / "b", rows=ROWS)
    report = verify(_sparse_form(b), b, samples=20)
    assert report.passed, report.reasons
    assert report.bit_exact
    assert report.a.how == "TensorFlow, lookups in NumPy"
    assert report.b.how == "session"


def test_another_absent_value_is_found(tmp_path: Path) -> None:
    b = verify_models.build_lookup(tmp_path / "b", rows=ROWS)
    report = verify(_sparse_form(b, absent=None), b, samples=20)
    assert not report.passed
    assert report.outputs[0].worst is not None


def test_lookups_after_lookups_and_defaults_of_their_own(tmp_path: Path) -> None:
    import tensorflow as tf

    path = verify_models.build_lookup(tmp_path / "m", rows=ROWS)
    model = read_model(path)
    graph = model.graph
    signature = model.signatures["serving_default"]
    item = signature.inputs["item"].tensor
    ids_of = Part(ArrayTensor(np.array([b"x", b"y"], object)), ArrayTensor(np.array([[10], [20]], np.int64)))
    first = SparseTable("ids", "t", np.dtype(object), 1, np.dtype(np.int64), [ids_of], Absent(np.array([[-5]]), ""))
    rows_of = Part(ArrayTensor(np.array([10, 20])), ArrayTensor(np.array([[1, 2], [3, 4]], np.float32)))
    rows_of.ignored = np.array([20])
    second = SparseTable("rows", "t", np.dtype(np.int64), 2, np.dtype(np.float32), [rows_of], Absent(None, ""))
    model.sparse_tables |= {"ids": first, "rows": second}
    ids = add_lookup(graph, "ids", item, tf.string, 1, tf.int64)
    default = graph.add_const(np.array([7, 8], np.float32))
    rows = add_lookup(graph, "rows", ids.output(), tf.int64, 2, tf.float32, default)
    score = signature.outputs["score"]
    signature.outputs["score"] = type(score)(rows.output(), score.dtype, None)
    runner = StagedRunner(model)
    inputs: dict[str, Any] = {"item": np.array([b"y", b"x", b"z"], object)}
    requests = [Request("serving_default", inputs, "a"), Request("serving_default", {"item": inputs["item"][1:2]}, "b")]
    first_answer, second_answer = runner.run(requests, lambda: None)
    runner.close()
    assert isinstance(first_answer, dict)
    assert isinstance(second_answer, dict)
    np.testing.assert_array_equal(first_answer["score"], [[[7, 8]], [[1, 2]], [[7, 8]]])
    np.testing.assert_array_equal(second_answer["score"], [[[1, 2]]])
    assert len(graph.of("SparseLookup")) == 2
