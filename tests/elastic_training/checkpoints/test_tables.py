# SPDX-License-Identifier: Apache-2.0
"""Rows of layers without a name of their own find their layer by its place in the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et

_KEYS = tf.range(40, dtype=tf.int64)


@keras.saving.register_keras_serializable(package="test_tables")
class _Subclassed(keras.Model):
    """Two tables of one dimension, so that only their order tells them apart, and one with blocks of columns."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.user = et.HashEmbedding(4)
        self.item = et.HashEmbedding(4)
        self.city = et.FrequencyEmbedding({2: 1, 4: 2})

    def call(self, keys: Any, training: Any = None) -> Any:
        parts = [layer(keys, training=training) for layer in (self.user, self.item, self.city)]
        return tf.concat(parts, -1)


def _functional() -> keras.Model:
    keys = keras.Input((), dtype="int64")
    rows = [et.HashEmbedding(4)(keys), et.HashEmbedding(4)(keys), et.FrequencyEmbedding({2: 1, 4: 2})(keys)]
    return keras.Model(keys, keras.layers.Concatenate()(rows))


def _filled(make: Callable[[], keras.Model]) -> keras.Model:
    model = make()
    for _ in range(2):
        model(_KEYS, training=True)
    for number, table in enumerate(et.Checkpoints("unused", model=model).tables()):
        table.insert(_KEYS, np.full((40, table.dim), number + 1, np.float32))
    return model


def _weights(model: keras.Model, other: keras.Model, path: Path) -> None:
    model.save_weights(path / "model.weights.h5")
    other(_KEYS)
    other.load_weights(path / "model.weights.h5")


def _tensorflow(model: keras.Model, other: keras.Model, path: Path) -> None:
    saved = tf.train.Checkpoint(model=model).save(str(path / "checkpoint"))
    other(_KEYS)
    tf.train.Checkpoint(model=other).restore(saved).assert_existing_objects_matched()


def _tensorflow_before_tables(model: keras.Model, other: keras.Model, path: Path) -> None:
    saved = tf.train.Checkpoint(model=model).save(str(path / "checkpoint"))
    tf.train.Checkpoint(model=other).restore(saved)


def _own(model: keras.Model, other: keras.Model, path: Path) -> None:
    et.Checkpoints(path, model=model).save()
    other(_KEYS)
    et.Checkpoints(path, model=other).restore()


@pytest.mark.parametrize("transfer", [_weights, _tensorflow, _tensorflow_before_tables, _own])
@pytest.mark.parametrize("make", [_Subclassed, _functional])
def test_second_model_of_a_process_takes_rows_over(
    make: Any, transfer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, other = _filled(make), make()
    expected = model(_KEYS).numpy()
    assert sorted(set(expected[0])) == [1, 2, 3, 4]
    transfer(model, other, tmp_path)
    np.testing.assert_array_equal(other(_KEYS), expected)


@pytest.mark.parametrize("make", [_Subclassed, _functional])
def test_keras_file_is_loaded_beside_its_model(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = _filled(make)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(_KEYS), model(_KEYS))


def test_chosen_names_find_their_tables_in_another_order(tmp_path: Path) -> None:
    one, two = (et.HashEmbedding(2, name=name) for name in ("one", "two"))
    for number, layer in enumerate((one, two)):
        layer(_KEYS)
        layer.table.insert([1], [[number, number]])
    et.Checkpoints(tmp_path, a=one, b=two).save()
    others = [et.HashEmbedding(2, name=name) for name in ("two", "one")]
    for layer in others:
        layer(_KEYS)
    et.Checkpoints(tmp_path, a=others[1], b=others[0]).restore()
    assert [layer.table.read([1]).weights.numpy()[0, 0] for layer in others] == [1, 0]


def test_name_may_be_chosen_later(tmp_path: Path) -> None:
    model, named = et.HashEmbedding(2), et.HashEmbedding(2, name="user")
    model(_KEYS, training=True)
    et.Checkpoints(tmp_path, model=model).save()
    named(_KEYS)
    et.Checkpoints(tmp_path, model=named).restore()
    assert named.table.size() == 40


def _layers(*dims: int) -> keras.Model:
    keys = keras.Input((), dtype="int64")
    return keras.Model(keys, [et.HashEmbedding(dim)(keys) for dim in dims])


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ((2,), r"checkpoint-00000001: it has no table 'hash_embedding_\d+', which the model has, but has 'hash_emb"),
        ((2, 2, 2), "checkpoint-00000001: it has no table"),
        ((2, 3), r"checkpoint-00000001: table 'hash_embedding_\d+': dim is 2, expected 3"),
        ((), "checkpoint-00000001: it has table 'hash_embedding"),
    ],
)
def test_layers_that_do_not_fit_are_refused(tmp_path: Path, dims: tuple[int, ...], message: str) -> None:
    et.Checkpoints(tmp_path, model=_layers(2, 2)).save()
    other = _layers(*dims) if dims else keras.Sequential()
    with pytest.raises(ValueError, match=message):
        et.Checkpoints(tmp_path, model=other).restore()


def _features(*names: str) -> et.FeatureEmbeddings:
    layer = et.FeatureEmbeddings({name: et.Feature(2) for name in names})
    layer(dict.fromkeys(names, _KEYS), training=True)
    return layer


def test_tensorflow_checkpoint_with_another_table_is_refused_by_name(tmp_path: Path) -> None:
    saved = tf.train.Checkpoint(layer=_features("user", "item")).save(str(tmp_path / "checkpoint"))
    with pytest.raises(ValueError, match=r"checkpoint-1: it has rows of table 'item' for .*, which has 'user', 'city'"):
        tf.train.Checkpoint(layer=_features("user", "city")).restore(saved)
    single = et.HashEmbedding(2)
    with pytest.raises(ValueError, match="checkpoint-1: it has rows of table 'user' for HashEmbedding"):
        tf.train.Checkpoint(layer=single).restore(saved)


def test_weights_file_with_another_table_is_refused_by_name(tmp_path: Path) -> None:
    def model(feature: str) -> keras.Model:
        keys = keras.Input((), dtype="int64")
        return keras.Model(keys, et.FeatureEmbeddings({feature: et.Feature(2)})({feature: keys}))

    model("user").save_weights(tmp_path / "model.weights.h5")
    with pytest.raises(ValueError, match=r"has tables \['user'\], expected \['city'\]"):
        model("city").load_weights(tmp_path / "model.weights.h5")
