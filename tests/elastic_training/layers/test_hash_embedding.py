# SPDX-License-Identifier: Apache-2.0
"""Configuration, saving and sharing of HashEmbedding in Keras 3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
from helpers.elastic.tables import new_rows, rows_of, updates


def _model(**options: Any) -> keras.Model:
    inputs = keras.Input((3,), dtype="string")
    rows = et.HashEmbedding(4, name="user", **options)(inputs)
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(rows)))


OPTIONS: dict[str, Any] = {
    "optimizer": et.Adam(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9), clipnorm=1.0),
    "admit": et.PoissonFilter(5),
    "evict": et.Ttl(30, triggers=(et.Rows(10**6), et.Interval(60))),
    "embeddings_initializer": keras.initializers.RandomNormal(stddev=0.1),
    "mask_zero": True,
    "seed": 3,
    "dtype": "mixed_bfloat16",
}


def test_layer_survives_its_config() -> None:
    layer = et.HashEmbedding(4, name="user", combiner=None, **OPTIONS)
    again = et.HashEmbedding.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert again.dim == 4
    assert again.compute_dtype == "bfloat16"


def test_keras_file_restores_the_configuration_and_the_kind_of_keys(tmp_path: Path) -> None:
    model = _model(**{**OPTIONS, "mask_zero": False, "dtype": "float32"})
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    layer = loaded.get_layer("user")
    assert layer.table.config == model.get_layer("user").table.config
    assert layer.table.config.key == "string"
    assert layer.table is not model.get_layer("user").table
    loaded.compile("sgd", "mse")
    loaded.fit(tf.data.Dataset.from_tensors((tf.constant([["a", "b", "c"]]), tf.ones([1, 1]))), verbose=0)
    assert updates(layer.table) == 1


def test_clone_has_rows_of_its_own() -> None:
    model = _model()
    clone = keras.models.clone_model(model)
    clone(tf.constant([["a", "b", "c"]]), training=True)
    assert clone.get_layer("user").table.size() == 3
    assert model.get_layer("user").table.size() == 0


def _shared() -> keras.Model:
    item, history = keras.Input((), dtype="int64"), keras.Input((4,), dtype="int64")
    table = et.Table(et.TableConfig("item", 4, optimizer=et.Adagrad(0.1)))
    rows = [et.HashEmbedding(table=table)(item), et.HashEmbedding(table=table, combiner="mean")(history)]
    return keras.Model([item, history], keras.layers.Dot(1)(rows))


def test_layers_with_one_table_read_the_same_rows() -> None:
    table = et.Table(et.TableConfig("item", 4, optimizer=et.SGD(0.1)))
    layers = [et.HashEmbedding(table=table), et.HashEmbedding(4, optimizer=et.SGD(0.1), table=table)]
    rows = new_rows(layers[0], range(3))
    assert np.array_equal(rows_of(layers[1], range(3)), rows)
    with pytest.raises(ValueError, match="are string, but table 'item' has int64 keys"):
        layers[1](tf.constant(["a"]))


def test_sharing_survives_a_keras_file(tmp_path: Path) -> None:
    model = _shared()
    model.save(tmp_path / "model.keras")
    first, second = (
        layer
        for layer in keras.saving.load_model(tmp_path / "model.keras").layers
        if isinstance(layer, et.HashEmbedding)
    )
    assert first.table is second.table
    assert first.table.config == et.TableConfig("item", 4, optimizer=et.Adagrad(0.1))
    other = keras.saving.load_model(tmp_path / "model.keras")
    assert all(layer.table is not first.table for layer in other.layers if isinstance(layer, et.HashEmbedding))


def test_clone_that_would_split_a_shared_table_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"table 'item' is shared by 2 layers, expected all of them to be loaded at once"
    ):
        keras.models.clone_model(_shared())


def test_name_of_a_table_alone_shares_nothing() -> None:
    layers = [et.HashEmbedding(4, table="item") for _ in range(2)]
    for layer in layers:
        new_rows(layer, range(3))
    assert layers[0].table is not layers[1].table


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": et.Adagrad(0.2)}, r"optimizer is Adagrad\(learning_rate=0.2.*but table 'item' has SGD"),
        ({"dim": 8}, "dim is 8, but table 'item' has 4"),
        ({"admit": et.CountFilter(3)}, r"admit is CountFilter\(threshold=3\), but table 'item' has AlwaysAdmit"),
        ({"evict": et.Ttl(3)}, "evict is Ttl.*, but table 'item' has None"),
    ],
)
def test_setting_that_contradicts_a_given_table_is_refused(options: dict[str, Any], message: str) -> None:
    table = et.Table(et.TableConfig("item", 4, optimizer=et.SGD(0.1)))
    with pytest.raises(ValueError, match=f"HashEmbedding 'second': {message}"):
        et.HashEmbedding(table=table, name="second", **options)


def test_rows_depend_on_seed_and_key_alone() -> None:
    first = new_rows(et.HashEmbedding(4, seed=1), [1, 2, 3])
    assert np.array_equal(new_rows(et.HashEmbedding(4, seed=1), [3, 2, 1])[::-1], first)
    assert not np.array_equal(new_rows(et.HashEmbedding(4, seed=2), [1, 2, 3]), first)


def test_filtered_keys_read_the_default_row_until_they_are_admitted() -> None:
    layer = et.HashEmbedding(4, admit=et.CountFilter(3))
    for expected in (0, 0, 1):
        layer(tf.constant([5]), training=True)
        assert layer.table.size() == expected
    assert np.any(rows_of(layer, [5]) != 0)
    assert np.all(rows_of(layer, [6]) == 0)


def test_gradient_that_is_not_finite_is_refused_and_counted() -> None:
    layer = et.HashEmbedding(4, optimizer=et.SGD(0.1))
    before = new_rows(layer, [1, 2])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([1, 2]), training=True) * [[np.nan], [1.0]])
    tape.gradient(loss, layer.trainable_variables)
    after = rows_of(layer, [1, 2])
    assert np.array_equal(after[0], before[0])
    np.testing.assert_allclose(after[1], before[1] - 0.1, rtol=1e-6)
    assert layer.table.stats()["refused_updates"] == 1
    assert f"table {layer.name!r}: 1 updates of rows refused: their gradients had NaN" in str(et.report(layer))


def test_gradient_that_is_not_finite_stops_training_on_request() -> None:
    layer = et.HashEmbedding(4, optimizer=et.SGD(0.1, stop_on_nan=True), table="user")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([1, 7]), training=True) * [[1.0], [np.inf]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"table 'user'.* key 7 is not finite"):
        tape.gradient(loss, layer.trainable_variables)


@pytest.mark.parametrize("dim", ["16", 0, -1, 8.0, True])
def test_number_of_columns_is_checked_at_once(dim: Any) -> None:
    with pytest.raises(ValueError, match=f"dim: {dim!r}, expected the number of columns, an integer from 1"):
        et.HashEmbedding(dim)


def test_size_of_a_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="optimizer: 16, expected an optimizer; tables have no size, so the number"):
        et.HashEmbedding(1000, 16)


def test_saved_model_is_refused_with_what_to_call(tmp_path: Any) -> None:
    keys = keras.Input((), dtype="int64")
    model = keras.Model(keys, et.HashEmbedding(2)(keys))
    for save in (model.export, lambda path: tf.saved_model.save(model, path)):
        with pytest.raises(ValueError, match=r"HashEmbedding .*: SavedModels have no tables .*, expected et.export"):
            save(str(tmp_path / "model"))
