# SPDX-License-Identifier: Apache-2.0
"""Test that weights of bags are generated at the places of their ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from graph_tools import verify
from graph_tools.readers import read_model
from graph_tools.verification.companions import find_companions
from graph_tools.verification.generate import Generator
from helpers.models.idiom_models import KEY, export_function, export_graph


def _weighted(path: Path, names: dict[str, str] | None = None) -> Path:
    """Export a weighted bag of sparse inputs whose names say nothing, as an estimator's linear part has it."""

    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        ids, weights = (v1.sparse_placeholder(dtype, [None, None]) for dtype in (v1.int64, v1.float32))
        table = v1.get_variable("table", [20, 2], initializer=v1.random_normal_initializer())
        pooled = v1.nn.safe_embedding_lookup_sparse(table, ids, weights, combiner="sum")
        parts = {"a": ids.indices, "b": ids.values, "c": ids.dense_shape}
        parts |= {"d": weights.indices, "e": weights.values, "f": weights.dense_shape}
        parts = {names[key] if names else key: part for key, part in parts.items()}
        return parts, {"y": v1.identity(pooled, name="y")}

    return export_graph(path, build)


def _padded(path: Path) -> Path:
    """Export what `weighted_categorical_column` makes of dense ids and weights, padded alike."""
    table = tf.Variable(np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32))

    def serve(words: Any, weights: Any) -> dict[str, Any]:
        made, weighed = tf.sparse.from_dense(words), tf.sparse.from_dense(weights)
        ids = tf.SparseTensor(made.indices, tf.strings.to_hash_bucket_fast(made.values, 30), made.dense_shape)
        return {"y": tf.nn.safe_embedding_lookup_sparse(table, ids, weighed, combiner="mean")}

    specs = [
        tf.TensorSpec([None, None], dtype, name=name) for name, dtype in (("words", tf.string), ("weights", tf.float32))
    ]
    return export_function(path, serve, specs, table=table)


def test_sparse_ids_have_as_many_weights(tmp_path: Path) -> None:
    model = read_model(_weighted(tmp_path / "model"))
    assert find_companions(model, model.signatures[KEY]) == [("b", "e")]
    for request in Generator(model, name=KEY).requests(20):
        inputs = request.inputs
        assert len(inputs["a"]) == len(inputs["b"]) == len(inputs["e"])


def test_sparse_weights_that_are_found_by_name_share_indices(tmp_path: Path) -> None:
    names = {"a": "ids_indices", "b": "ids_values", "c": "ids_shape", "d": "w_indices", "e": "w_values", "f": "w_shape"}
    model = read_model(_weighted(tmp_path / "model", names))
    for request in Generator(model, name=KEY).requests(20):
        inputs = request.inputs
        np.testing.assert_array_equal(inputs["ids_indices"], inputs["w_indices"])
        np.testing.assert_array_equal(inputs["ids_shape"], inputs["w_shape"])
        assert len(inputs["w_indices"]) == len(inputs["w_values"])


def test_weights_of_dense_ids_have_their_padding(tmp_path: Path) -> None:
    model = read_model(_padded(tmp_path / "model"))
    assert find_companions(model, model.signatures[KEY]) == [("words", "weights")]
    for request in Generator(model, name=KEY).requests(20):
        np.testing.assert_array_equal(request.inputs["words"] == b"", request.inputs["weights"] == 0)


def test_requests_for_weighted_bags_are_answered(tmp_path: Path) -> None:
    """All but those of ids beyond the table were refused by both models, and proved nothing."""
    for number, make in enumerate((_weighted, _padded)):
        path = make(tmp_path / str(number))
        report = verify(path, path)
        assert report.passed
        refused = [request.a for request in report.refused]
        assert len(refused) < 12, refused


def test_inputs_that_are_both_numbers_are_not_companions(tmp_path: Path) -> None:
    specs = [tf.TensorSpec([None, 3], tf.float32, name=name) for name in ("x", "z")]
    model = read_model(export_function(tmp_path / "model", lambda x, z: {"y": x * z}, specs))
    assert find_companions(model, model.signatures[KEY]) == []
