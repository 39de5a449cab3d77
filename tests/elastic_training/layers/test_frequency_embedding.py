# SPDX-License-Identifier: Apache-2.0
"""Rows that have more columns the more often training has met their key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et

DIMS = {2: 1, 5: 4, 9: 10}
WIDTHS = {"f_columns_0_2": 2, "f_columns_2_5": 3, "f_columns_5_9": 4}


def make_layer(**options: Any) -> et.FrequencyEmbedding:
    given = {"optimizer": et.Adagrad(0.1), "embeddings_initializer": et.Constant(0.5), "name": "f"}
    return et.FrequencyEmbedding(DIMS, **{**given, **options})


def columns_of(rows: Any) -> list[int]:
    """Return how many columns of each row are not zero; they are the first ones."""
    present = np.asarray(rows) != 0
    counts = present.sum(axis=-1)
    assert (present == (np.arange(present.shape[-1]) < counts[..., None])).all()
    return counts.tolist()


def train(layer: Any, keys: Any) -> Any:
    """Train one step towards rows of ones; returns the rows before it."""
    with tf.GradientTape() as tape:
        rows = layer(tf.constant(keys), training=True)
        loss = tf.reduce_sum(tf.square(rows - 1)) / 2
    tape.gradient(loss, layer.trainable_variables)
    return rows.numpy()


def test_columns_come_with_occurrences() -> None:
    layer = make_layer()
    seen = [columns_of(train(layer, [7]))[0] for _ in range(12)]
    assert seen == [2] * 3 + [5] * 6 + [9] * 3
    assert columns_of(train(layer, [8])) == [2]
    assert columns_of(layer(tf.constant([7, 8, 9]), training=False)) == [9, 2, 0]
    assert {name: table.dim for name, table in layer.tables.items()} == WIDTHS
    assert [table.size() for table in layer.tables.values()] == [2, 1, 1]


def test_occurrences_of_a_batch_count_at_once() -> None:
    layer = make_layer()
    assert columns_of(train(layer, [[3, 3], [3, 3]])) == [[5, 5], [5, 5]]
    assert columns_of(train(layer, [3] * 6)) == [9] * 6


def test_each_column_learns_as_a_row_of_its_own_does() -> None:
    layer = make_layer()
    expected, accumulator = np.full(9, 0.5, np.float32), np.full(9, 0.1, np.float32)
    for occurrence in range(1, 15):
        train(layer, ["a"])
        has = [columns for columns, first in DIMS.items() if occurrence >= first][-1]
        gradient = (expected - 1) * (np.arange(9) < has)
        accumulator += gradient * gradient
        expected -= np.float32(0.1) * gradient / np.sqrt(accumulator + np.float32(1e-7))
    np.testing.assert_allclose(layer(tf.constant(["a"]), training=False)[0], expected, rtol=1e-6)


def test_rare_keys_cost_their_first_columns() -> None:
    layer = make_layer()
    random = np.random.default_rng(0)
    for _ in range(20):
        train(layer, np.concatenate([random.integers(0, 10**9, 500), np.arange(20) - 100]))
    sizes = [table.size() for table in layer.tables.values()]
    assert sizes[0] > 9000
    assert sizes[1:] == [20, 20]


def test_keras_trains_saves_and_loads(tmp_path: Path) -> None:
    keys = keras.Input((2,), dtype="int64")
    rows = make_layer(mask_zero=True)(keys)
    assert rows.shape == (None, 2, 9)
    model = keras.Model(keys, keras.layers.Dense(1)(keras.layers.Flatten()(rows)))
    model.compile("sgd", "mse")
    batch = tf.constant([[5, 6], [5, 0]], tf.int64), tf.ones([2, 1])
    model.fit(tf.data.Dataset.from_tensors(batch).repeat(3), verbose=0)
    layer = model.get_layer("f")
    assert columns_of(layer(tf.constant([5, 6, 0]), training=False)) == [5, 2, 0]
    before = [table.stats() for table in layer.tables.values()]
    model.predict(batch[0], verbose=0)
    assert [table.stats() for table in layer.tables.values()] == before
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras").get_layer("f")
    assert loaded.get_config() == layer.get_config()
    assert {name: table.settings for name, table in loaded.tables.items()} == {
        name: table.settings for name, table in layer.tables.items()
    }


def test_a_frozen_layer_writes_nothing() -> None:
    layer = make_layer()
    train(layer, [1] * 10)
    layer.trainable = False
    before = [table.stats() for table in layer.tables.values()]
    assert columns_of(layer(tf.constant([1, 2]), training=True)) == [9, 0]
    assert [table.stats() for table in layer.tables.values()] == before


def test_tf_keras_has_it_too() -> None:
    layer = et.tf_keras.FrequencyEmbedding(DIMS, et.SGD(0.1), embeddings_initializer=et.Constant(0.5))
    assert columns_of(train(layer, [4] * 4 + [5])) == [5] * 4 + [2]
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({}, "dims is {}, expected {columns: occurrences}"),
        ({4: 2}, "dims begins with {4: 2}"),
        ({0: 1}, "dims begins with {0: 1}"),
        ({4: 1, 3: 5}, r"columns of dims are \[4, 3\]"),
        ({4: 1, 8: 1}, r"occurrences of dims are \[1, 1\]"),
    ],
    ids=str,
)
def test_wrong_dims_are_refused(dims: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"FrequencyEmbedding 'f': {message}"):
        et.FrequencyEmbedding(dims, name="f")


def test_ragged_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="keys are RaggedTensor, expected a dense tensor"):
        make_layer()(tf.ragged.constant([[1], [2, 3]]), training=True)
    with pytest.raises(ValueError, match="ragged or sparse, expected a dense tensor"):
        make_layer()(keras.Input((None,), dtype="int64", ragged=True))
