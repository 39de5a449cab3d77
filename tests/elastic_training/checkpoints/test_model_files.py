# SPDX-License-Identifier: Apache-2.0
"""Models with tables in files of Keras, and in checkpoints of TensorFlow and of this package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et

_USERS = np.random.default_rng(0).integers(0, 40, (64, 2)).astype(str)
_ITEMS = np.random.default_rng(1).integers(0, 40, 64)

# Loads what was saved, into a model that the function makes unless the file has one.
_Load = Callable[[Callable[[], keras.Model]], keras.Model]


def _model(dim: int = 4) -> keras.Model:
    users = keras.Input((2,), dtype="string", name="users")
    items = keras.Input((), dtype="int64", name="items")
    offset = keras.Input((2,), dtype="int64", name="stream_offset")
    admit = et.CountFilter(2)
    user = et.HashEmbedding(dim, optimizer=et.Adam(0.1), combiner="sum", admit=admit, name="user")(users)
    item = et.FeatureEmbeddings({"item": et.Feature(3, optimizer=et.GroupAdagrad(0.1, l21=1e-3))}, name="items_")(
        {"item": items}
    )["item"]
    both = et.StreamOffsets(name="offsets")(keras.layers.Concatenate()([user, item]), offset)
    model = keras.Model([users, items, offset], keras.layers.Dense(1)(both))
    model.compile("adam", "mse")
    return model


def _fit(model: keras.Model, **options: Any) -> None:
    offsets = model.get_layer("offsets")
    data = tf.data.Dataset.from_tensor_slices(({"users": _USERS, "items": _ITEMS}, _ITEMS % 3)).batch(8)
    model.fit(offsets.number(data.skip(offsets.next(0))).prefetch(4), verbose=0, **options)


def _tables(model: keras.Model) -> list[et.Table]:
    return [model.get_layer("user").table, model.get_layer("items_").tables["item"]]


def _rows(model: keras.Model) -> list[dict[Any, bytes]]:
    found = []
    for table in _tables(model):
        keys, rows = table.export()
        columns = [rows.weights.numpy(), rows.slots.numpy(), rows.meta.numpy()]
        found.append({key: b"".join(c[i].tobytes() for c in columns) for i, key in enumerate(keys.tolist())})
    return found


def _same(model: keras.Model, other: keras.Model) -> None:
    assert _rows(model) == _rows(other)
    assert sum(len(rows) for rows in _rows(model)) > 60
    assert [int(table.step()) for table in _tables(model)] == [int(table.step()) for table in _tables(other)]
    for one, two in zip(model.variables, other.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), two.numpy())
    assert other.get_layer("offsets").next(0) == 8


@pytest.fixture(scope="module")
def trained() -> keras.Model:
    model = _model()
    _fit(model)
    return model


def _keras(model: keras.Model, path: Path) -> _Load:
    model.save(path / "model.keras")
    return lambda _: keras.saving.load_model(path / "model.keras")


def _weights(model: keras.Model, path: Path) -> _Load:
    model.save_weights(path / "model.weights.h5")

    def load(make: Callable[[], keras.Model]) -> keras.Model:
        other = make()
        other.load_weights(path / "model.weights.h5")
        return other

    return load


def _tensorflow(model: keras.Model, path: Path) -> _Load:
    saved = tf.train.Checkpoint(model=model).save(str(path / "checkpoint"))

    def load(make: Callable[[], keras.Model]) -> keras.Model:
        other = make()
        tf.train.Checkpoint(model=other).restore(saved).assert_existing_objects_matched()
        return other

    return load


def _own(model: keras.Model, path: Path) -> _Load:
    et.Checkpoints(path, model=model).save()

    def load(make: Callable[[], keras.Model]) -> keras.Model:
        other = make()
        et.Checkpoints(path, model=other).restore()
        return other

    return load


@pytest.mark.parametrize("save", [_keras, _weights, _tensorflow, _own])
def test_model_is_the_same_after_loading(trained: keras.Model, save: Any, tmp_path: Path) -> None:
    _same(trained, save(trained, tmp_path)(_model))


@pytest.mark.parametrize("save", [_weights, _tensorflow, _own])
def test_other_dimension_is_refused_by_name(trained: keras.Model, save: Any, tmp_path: Path) -> None:
    load, small = save(trained, tmp_path), _model(dim=2)
    with pytest.raises(ValueError, match="table 'user': dim is 4, expected 2"):
        load(lambda: small)
    assert small.get_layer("user").table.size() == 0


def test_fit_goes_on_where_the_checkpoint_was(tmp_path: Path) -> None:
    whole = _model()
    checkpoints = et.Checkpoints(tmp_path, full_every=2, model=whole)
    initial = [variable.numpy() for variable in whole.variables]
    _fit(whole, steps_per_epoch=5, callbacks=[checkpoints.callback(every_steps=2)])
    assert not checkpoints.writing()
    # After 2 steps, 4 unless the first was still being written, and at the end.
    assert 2 <= len(checkpoints.names()) <= 3
    assert whole.get_layer("offsets").next(0) == 5
    _fit(whole)
    resumed = _model()
    for variable, value in zip(resumed.variables, initial, strict=True):
        variable.assign(value)
    other = et.Checkpoints(tmp_path, model=resumed)
    other.restore(tmp_path / "checkpoint-00000001")
    assert resumed.get_layer("offsets").next(0) == 2
    assert int(resumed.optimizer.iterations) == 2
    _fit(resumed)
    touches = slice(-24, -16)  # the time of a lookup may differ
    for one, two in zip(_rows(whole), _rows(resumed), strict=True):
        assert {k: v.replace(v[touches], b"") for k, v in one.items()} == {
            k: v.replace(v[touches], b"") for k, v in two.items()
        }
    np.testing.assert_array_equal(whole.layers[-1].kernel.numpy(), resumed.layers[-1].kernel.numpy())


def test_module_restores_when_it_makes_its_table(tmp_path: Path) -> None:
    module = et.HashEmbeddingModule(4, name="user")
    module(tf.constant([1, 2]), training=True)
    saved = tf.train.Checkpoint(module=module).save(str(tmp_path / "checkpoint"))
    other = et.HashEmbeddingModule(4, name="user", seed=9)
    tf.train.Checkpoint(module=other).restore(saved)
    np.testing.assert_array_equal(other(tf.constant([1, 2])), module(tf.constant([1, 2])))
    assert other.table.size() == 2


def test_shared_table_is_loaded_once_for_all_layers(tmp_path: Path) -> None:
    table = et.Table(et.TableConfig("shared", 2))
    inputs = keras.Input((), dtype="int64")
    layers = [et.HashEmbedding(table=table, name=name) for name in ("a", "b")]
    model = keras.Model(inputs, keras.layers.Add()([layer(inputs) for layer in layers]))
    table.insert([1, 2], [[1, 2], [3, 4]])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.get_layer("a").table is loaded.get_layer("b").table
    np.testing.assert_array_equal(loaded.predict(np.array([1, 2]), verbose=0), [[2, 4], [6, 8]])
