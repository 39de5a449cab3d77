# SPDX-License-Identifier: Apache-2.0
"""Test that weights change in their last place, and that effects of rounding are not differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools import cut, verify
from graph_tools.readers import read_model
from graph_tools.verification.nudging import NUDGES, is_nudgeable, nudgeable_copy, nudged, without_nudges
from graph_tools.verification.request import Request
from graph_tools.verification.staged import StagedRunner
from helpers.models.idiom_models import KEY, export_function

TABLE = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)


def _lookup(path: Path, rows: np.ndarray = TABLE) -> Path:
    """Export a model that gives rows of a table, looked up and picked from all of them."""
    table = tf.Variable(rows)

    def serve(ids: Any) -> dict[str, Any]:
        return {"rows": tf.nn.embedding_lookup(table, ids), "all": tf.gather(table + 0.0, ids)}

    return export_function(path, serve, [tf.TensorSpec([None], tf.int64, name="ids")], table=table)


def test_every_weight_moves_by_its_last_place(tmp_path: Path) -> None:
    model = nudgeable_copy(read_model(_lookup(tmp_path / "model")))
    assert is_nudgeable(model)
    ids = np.arange(7)
    asked = [nudged(Request(KEY, {"ids": ids}, "r"), kind) for kind in range(NUDGES)]
    runner = StagedRunner(model)
    answers = runner.run(asked, lambda: None)
    runner.close()
    moved = []
    for answer in answers:
        assert isinstance(answer, dict)
        # The same weight is the same, however it is read.
        np.testing.assert_array_equal(answer["rows"], answer["all"])
        places = np.abs(answer["rows"] - TABLE) / np.spacing(np.abs(TABLE))
        assert places.min() >= 1
        assert places.max() <= 2
        moved.append(np.sign((answer["rows"] - TABLE) * TABLE))
    assert (moved[0] == 1).all()
    assert (moved[1] == -1).all()
    for array in moved[2:]:
        assert {-1, 1} == set(array.ravel())


def test_a_model_without_numbers_stays_as_it_is(tmp_path: Path) -> None:
    specs = [tf.TensorSpec([None], tf.int64, name="x")]
    model = nudgeable_copy(read_model(export_function(tmp_path / "model", lambda x: {"y": x + x}, specs)))
    assert not is_nudgeable(model)
    request = Request(KEY, {"x": np.ones(1, np.int64)}, "r")
    assert without_nudges(nudged(request, 0)).inputs == request.inputs


def _pairs(path: Path, rows: np.ndarray, cancelling: bool) -> Path:
    """Export a model of ids alone, whose score is what is left of large numbers, added in one of two orders."""
    table = tf.Variable(rows)

    def serve(ids: Any) -> dict[str, Any]:
        x = tf.nn.embedding_lookup(table, ids)
        total = tf.reduce_sum(x, 1)
        if cancelling:
            return {"y": tf.square(total) - tf.reduce_sum(tf.square(x), 1)}
        first, second, third = tf.unstack(x, axis=1)
        return {"y": 2.0 * (first * second + first * third + second * third)}

    return export_function(path, serve, [tf.TensorSpec([None, 3], tf.int64, name="ids")], table=table)


def test_rounding_of_ids_that_cancel_is_not_a_difference(tmp_path: Path) -> None:
    rows = TABLE[:, :1].copy()
    rows[0] = 3000.0
    one, other = _pairs(tmp_path / "one", rows, True), _pairs(tmp_path / "other", rows, False)
    report = verify(one, other)
    assert report.passed, report.reasons
    (output,) = report.outputs
    assert output.unsettled > 0
    assert not verify(one, other, rounding=False).passed
    assert not verify(one, _pairs(tmp_path / "wrong", rows * np.float32(1.00001), False)).passed


@pytest.mark.parametrize("seed", [3, 8])
def test_folded_normalization_is_cut(tmp_path: Path, seed: int) -> None:
    """Two of ten such models were refused."""
    random = np.random.default_rng(seed)
    tf.keras.utils.set_random_seed(seed)
    x = y = tf.keras.Input((8,), name="x")
    for units in (32, 16):
        y = tf.keras.layers.BatchNormalization()(tf.keras.layers.Dense(units)(y))
        y = tf.keras.layers.ReLU()(y)
    model = tf.keras.Model(x, tf.keras.layers.Dense(1, activation=None if seed % 2 else "sigmoid")(y))
    for layer in model.layers:
        if isinstance(layer, tf.keras.layers.BatchNormalization):
            layer.moving_mean.assign(random.normal(size=layer.moving_mean.shape) * 10)
            layer.moving_variance.assign(np.exp(random.normal(size=layer.moving_mean.shape) * 2))
    model.export(str(tmp_path / "source"), verbose=False)
    report = cut(tmp_path / "source", tmp_path / "small")
    assert sum(pass_.applied for pass_ in report.passes if pass_.name == "fold_batch_norms") == 2
    assert report.verification.passed
