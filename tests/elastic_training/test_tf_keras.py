# SPDX-License-Identifier: Apache-2.0
"""The layers in models of tf-keras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
from helpers.elastic.exported import check_published
from helpers.elastic.tables import new_rows, rows_of, updates

tf_keras = pytest.importorskip("tf_keras")

KEYS = np.arange(96, dtype=np.int64).reshape(32, 3)
LABELS = np.ones((32, 1), np.float32)


def _model(**options: Any) -> Any:
    inputs = tf_keras.Input((3,), dtype="int64")
    rows = et.tf_keras.HashEmbedding(4, optimizer=options.pop("optimizer", et.SGD(0.1)), name="user", **options)(inputs)
    return tf_keras.Model(inputs, tf_keras.layers.Dense(1)(tf_keras.layers.Flatten()(rows)))


def test_only_the_module_for_tf_keras_imports_it() -> None:
    # Learning rates import it late, to restore a schedule of it.
    package = Path(et.__file__).parent
    importing = {path.name for path in package.rglob("*.py") if "import tf_keras" in path.read_text(encoding="utf-8")}
    assert importing == {"learning_rates.py", "tf_keras.py"}
    named = [
        path.name for path in package.rglob("*.py") if "elastic_training.tf_keras" in path.read_text(encoding="utf-8")
    ]
    assert set(named) == {"__init__.py", "tf_keras.py"}


@pytest.mark.parametrize("options", [{}, {"steps_per_execution": 2}, {"run_eagerly": True}])
def test_fit_updates_once_a_step(options: dict[str, Any]) -> None:
    model = _model()
    layer = model.get_layer("user")
    before = new_rows(layer, KEYS.reshape(-1))
    model.compile("adam", "mse", **options)
    model.fit(KEYS, LABELS, batch_size=8, epochs=2, verbose=0)
    assert updates(layer.table) == 8
    assert np.all(np.any(rows_of(layer, KEYS.reshape(-1)) != before, axis=1))
    model.evaluate(KEYS + 1000, LABELS, verbose=0)
    model.predict(KEYS + 1000, verbose=0)
    assert layer.table.size() == KEYS.size
    assert updates(layer.table) == 8


def test_legacy_optimizer_updates() -> None:
    model = _model()
    model.compile(tf_keras.optimizers.legacy.Adam(), "mse")
    model.fit(KEYS, LABELS, batch_size=8, verbose=0)
    assert updates(model.get_layer("user").table) == 4


def test_own_loop_updates() -> None:
    model = _model()
    optimizer = tf_keras.optimizers.SGD(0.1)

    @tf.function
    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        optimizer.minimize(loss, model.trainable_variables, tape=tape)

    for _ in range(3):
        step(KEYS, LABELS)
    assert updates(model.get_layer("user").table) == 3


def test_frozen_layer_writes_nothing() -> None:
    model = _model()
    model.get_layer("user").trainable = False
    model.compile("sgd", "mse")
    model.fit(KEYS, LABELS, batch_size=8, verbose=0)
    assert model.get_layer("user").table.size() == 0


def test_scaled_loss_gives_the_same_rows() -> None:
    rows = []
    for scaled in (False, True):
        optimizer = tf_keras.optimizers.SGD(0.1)
        if scaled:
            optimizer = tf_keras.mixed_precision.LossScaleOptimizer(optimizer, initial_scale=1024)
        model = _model()
        new_rows(model.get_layer("user"), KEYS.reshape(-1))
        model.layers[-1].set_weights([np.ones((12, 1), np.float32), np.zeros(1, np.float32)])
        model.compile(optimizer, "mse")
        model.fit(KEYS, LABELS, batch_size=8, shuffle=False, verbose=0)
        rows.append(rows_of(model.get_layer("user"), KEYS.reshape(-1)))
    np.testing.assert_allclose(rows[1], rows[0], rtol=1e-4, atol=1e-6)


def test_clipping_of_the_model_is_refused() -> None:
    model = _model()
    model.compile(tf_keras.optimizers.SGD(0.1, clipnorm=0.5), "mse")
    with pytest.raises(ValueError, match=r"SGD has clipnorm=0.5, which does not reach rows of tables"):
        model.fit(KEYS, LABELS, batch_size=8, verbose=0)


def test_keras_file_restores_the_configuration(tmp_path: Path) -> None:
    schedule = tf_keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    model = _model(optimizer=et.Adagrad(schedule), mask_zero=True)
    model.save(tmp_path / "model.keras")
    loaded = tf_keras.models.load_model(tmp_path / "model.keras").get_layer("user")
    assert loaded.table.config == model.get_layer("user").table.config
    assert loaded.get_config() == model.get_layer("user").get_config()


def test_features_ragged_and_sparse() -> None:
    inputs = {
        "history": tf_keras.Input((None,), dtype="string", ragged=True, name="history"),
        "tags": tf_keras.Input((9,), dtype="int64", sparse=True, name="tags"),
        "user": tf_keras.Input((), dtype="int64", name="user"),
    }
    features = {"history": et.Feature(combiner="mean"), "tags": et.Feature(combiner="sum"), "user": et.Feature()}
    layer = et.tf_keras.FeatureEmbeddings(features, dim=4, optimizer=et.SGD(0.1))
    outputs = layer(inputs)
    assert {name: rows.shape.as_list() for name, rows in outputs.items()} == {name: [None, 4] for name in features}
    model = tf_keras.Model(inputs, tf_keras.layers.Dense(1)(tf_keras.layers.Concatenate()(list(outputs.values()))))
    model.compile("sgd", "mse")
    data = {
        "history": tf.ragged.constant([["a"], [], ["b", "c"]]),
        "tags": tf.SparseTensor([[0, 0], [2, 1]], [5, 6], [3, 9]),
        "user": tf.constant([1, 2, 3], tf.int64),
    }
    model.fit(tf.data.Dataset.from_tensors((data, tf.ones([3, 1]))).repeat(3), verbose=0)
    assert {name: (updates(table), table.size()) for name, table in layer.tables.items()} == {
        "history": (3, 3),
        "tags": (3, 2),
        "user": (3, 3),
    }


def test_publisher_publishes_each_push(tmp_path: Path) -> None:
    model = _model()
    model.compile("sgd", "mse")
    model.fit(KEYS, LABELS, batch_size=8, verbose=0)
    et.export(model, tmp_path / "export")
    publisher = et.tf_keras.Publisher(tmp_path / "timeline", every="1h", export=tmp_path / "export")

    epochs: list[int] = []
    pushes = tf_keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: epochs.append(publisher.flush()))
    model.fit(KEYS, LABELS, batch_size=8, epochs=2, verbose=0, callbacks=[publisher, pushes])
    # Each of eight batches, and the end of fit, after which nothing has changed.
    assert epochs == list(range(1, 9))
    assert publisher.epoch == 8
    check_published(model, tmp_path / "export", tmp_path / "timeline")
    publisher.close()
    with et.tf_keras.Publisher(tmp_path / "timeline", every="1ms", export=tmp_path / "export") as publisher:
        model.fit(KEYS + 1000, LABELS, batch_size=8, verbose=0, callbacks=[publisher])
        assert publisher.epoch > 8
    check_published(model, tmp_path / "export", tmp_path / "timeline")


def test_checkpoints_are_saved_between_batches_and_restored(tmp_path: Path) -> None:
    model = _model()
    model.compile("adam", "mse")
    checkpoints = et.Checkpoints(tmp_path, model=model, keep=9)
    save = et.tf_keras.SaveCheckpoints(checkpoints, every_steps=3)
    # Training does not wait for a checkpoint that is being written; here it does, so that the next one is due.
    waits = tf_keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: checkpoints.wait())
    model.fit(KEYS, LABELS, batch_size=8, epochs=2, verbose=0, callbacks=[save, waits])
    # After three and six of eight steps, and at the end.
    assert len(checkpoints.names()) == 3
    trained = rows_of(model.layers[1], KEYS.reshape(-1))
    model.fit(KEYS, LABELS, batch_size=8, verbose=0)
    assert np.any(rows_of(model.layers[1], KEYS.reshape(-1)) != trained)
    checkpoints.restore()
    np.testing.assert_array_equal(rows_of(model.layers[1], KEYS.reshape(-1)), trained)
    assert updates(model.layers[1].table) == 8


def test_saved_model_and_layers_of_the_other_keras_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"HashEmbedding 'user': SavedModels have no tables .*, expected et.export"):
        _model().save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"input of tf-keras, expected et.tf_keras.HashEmbedding"):
        et.HashEmbedding(4)(tf_keras.Input((3,), dtype="int64"))
