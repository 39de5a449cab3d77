# SPDX-License-Identifier: Apache-2.0
"""Every way to train updates the table once a step, and every way to infer writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
from helpers.elastic.tables import new_rows, rows_of, updates

KEYS = np.arange(96, dtype=np.int64).reshape(32, 3)
LABELS = np.ones((32, 1), np.float32)
BATCH, STEPS = 8, 4


def _functional(**options: Any) -> tuple[keras.Model, et.HashEmbedding]:
    inputs = keras.Input((3,), dtype="int64")
    layer = et.HashEmbedding(4, optimizer=et.SGD(0.1), **options)
    outputs = keras.layers.Dense(1)(keras.layers.Flatten()(layer(inputs)))
    return keras.Model(inputs, outputs), layer


class Subclassed(keras.Model):
    """Its call has no argument `training`."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = et.HashEmbedding(4, optimizer=et.SGD(0.1))
        self.dense = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.dense(tf.reshape(self.embedding(inputs), [-1, 12]))


def _changed(layer: Any, before: Any) -> bool:
    return bool(np.all(np.any(rows_of(layer, KEYS.reshape(-1)) != before, axis=1)))


@pytest.mark.parametrize(
    "options",
    [{}, {"steps_per_execution": 2}, {"steps_per_execution": 3}, {"run_eagerly": True}, {"jit_compile": "auto"}],
)
def test_fit_updates_once_a_step(options: dict[str, Any]) -> None:
    model, layer = _functional()
    before = new_rows(layer, KEYS.reshape(-1))
    model.compile("adam", "mse", **options)
    model.fit(KEYS, LABELS, batch_size=BATCH, epochs=2, verbose=0)
    assert updates(layer.table) == 2 * STEPS
    assert _changed(layer, before)
    assert float(layer.trap.numpy()) == 0


def test_fit_of_a_subclassed_model_without_training_argument_updates() -> None:
    model = Subclassed()
    model.compile("sgd", "mse")
    model.fit(KEYS, LABELS, batch_size=BATCH, verbose=0)
    assert updates(model.embedding.table) == STEPS


def test_train_on_batch_updates() -> None:
    model, layer = _functional()
    model.compile("sgd", "mse")
    model.train_on_batch(KEYS, LABELS)
    assert updates(layer.table) == 1


def test_fit_with_xla_is_refused_with_the_name_of_the_op() -> None:
    model, layer = _functional()
    model.compile("sgd", "mse", jit_compile=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="ElasticTableLookup"):
        model.fit(KEYS, LABELS, batch_size=BATCH, verbose=0)
    assert updates(layer.table) == 0


def _step(model: Any, optimizer: Any, *, training: bool | None) -> Callable[[Any, Any], Any]:
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=training) - y))
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    return step


@pytest.mark.parametrize("training", [True, None])
@pytest.mark.parametrize("wrap", [tf.function, lambda step: step], ids=["graph", "eager"])
def test_own_loop_updates_once_a_step(wrap: Callable[[Any], Any], training: bool | None) -> None:
    model, layer = _functional()
    before = new_rows(layer, KEYS.reshape(-1))
    step = wrap(_step(model, keras.optimizers.SGD(0.1), training=training))
    losses = [float(step(KEYS[i : i + BATCH], LABELS[i : i + BATCH])) for _ in range(3) for i in range(0, 32, BATCH)]
    assert updates(layer.table) == 3 * STEPS
    assert losses[-1] < losses[0]
    assert _changed(layer, before)


def test_loop_inside_a_graph_updates_once_an_iteration() -> None:
    model, layer = _functional()
    step = _step(model, keras.optimizers.SGD(0.1), training=True)

    @tf.function
    def loop(x: Any, y: Any) -> Any:
        loss = 0.0
        for _ in tf.range(5):
            loss = step(x, y)
        return loss

    loop(KEYS, LABELS)
    assert updates(layer.table) == 5


def test_graph_called_under_an_outer_tape_updates() -> None:
    model, layer = _functional()
    forward = tf.function(lambda x: model(x, training=True))
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(forward(KEYS))
        tape.gradient(loss, model.trainable_variables)
    assert updates(layer.table) == 3


def test_graph_that_was_traced_without_tape_refuses_a_gradient() -> None:
    model, layer = _functional()
    forward = tf.function(model)
    forward(KEYS)
    with pytest.raises(ValueError, match="traced without a gradient tape, expected the argument training=True"):  # noqa: SIM117
        with tf.GradientTape() as tape:
            tape.gradient(tf.reduce_sum(forward(KEYS)), model.trainable_variables)
    assert updates(layer.table) == 0


def test_graph_under_an_outer_tape_needs_the_training_argument() -> None:
    model, layer = _functional()
    forward = tf.function(model)
    with pytest.raises(ValueError, match="under a gradient tape of its caller"), tf.GradientTape():
        forward(KEYS)

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.cond(x[0, 0] == 0, lambda: model(x), lambda: 2 * model(x)))
        return tape.gradient(loss, model.trainable_variables)

    step(KEYS)
    assert updates(layer.table) == 1


def test_several_losses_make_one_update() -> None:
    model, layer = _functional()
    with tf.GradientTape() as tape:
        scores = model(KEYS, training=True)
        losses = [tf.reduce_sum(scores), tf.reduce_sum(scores**2)]
    tape.gradient(losses, model.trainable_variables)
    assert updates(layer.table) == 1


def test_multiple_outputs_with_losses_make_one_update() -> None:
    inputs = keras.Input((3,), dtype="int64")
    layer = et.HashEmbedding(4, optimizer=et.SGD(0.1), combiner="sum")
    rows = layer(inputs)
    model = keras.Model(inputs, [keras.layers.Dense(1)(rows), keras.layers.Dense(1)(rows)])
    model.compile("sgd", ["mse", "mae"])
    model.fit(KEYS, [LABELS, LABELS], batch_size=BATCH, verbose=0)
    assert updates(layer.table) == STEPS


def test_layer_that_is_called_twice_updates_twice_a_step() -> None:
    first, second = keras.Input((3,), dtype="int64"), keras.Input((3,), dtype="int64")
    layer = et.HashEmbedding(4, optimizer=et.SGD(0.1), combiner="sum")
    model = keras.Model([first, second], keras.layers.Dot(1)([layer(first), layer(second)]))
    model.compile("sgd", "mse")
    model.fit([KEYS, KEYS[::-1]], LABELS, batch_size=BATCH, verbose=0)
    assert updates(layer.table) == 2 * STEPS


def test_evaluate_predict_and_calls_write_nothing() -> None:
    model, layer = _functional()
    model.compile("sgd", "mse")
    model.fit(KEYS, LABELS, batch_size=BATCH, verbose=0)
    size = layer.table.size()
    assert size == KEYS.size
    others = KEYS + 1000
    model.evaluate(others, LABELS, verbose=0)
    model.predict(others, verbose=0)
    model(others)
    model.test_on_batch(others, LABELS)
    tf.function(model)(others)
    assert layer.table.size() == size
    assert updates(layer.table) == STEPS


@pytest.mark.parametrize("whole", [True, False])
def test_frozen_layers_write_nothing(whole: bool) -> None:
    model, layer = _functional()
    layer(KEYS[:1])
    (model if whole else layer).trainable = False
    model.compile("sgd", "mse")
    with pytest.warns(UserWarning, match="trainable weights") if whole else _nothing():
        model.fit(KEYS, LABELS, batch_size=BATCH, verbose=0)
    assert layer.table.size() == 0
    assert updates(layer.table) == 0


class _nothing:  # noqa: N801
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_training_false_under_a_tape_writes_nothing() -> None:
    model, layer = _functional()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(KEYS, training=False))
    assert tape.gradient(loss, model.trainable_variables)[0] is None
    assert layer.table.size() == 0


def test_gradient_of_other_weights_alone_updates_no_rows() -> None:
    model, layer = _functional()
    before = new_rows(layer, KEYS.reshape(-1))
    for wrap in (tf.function, lambda function: function):

        def dense_gradient() -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(KEYS, training=True))
            return tape.gradient(loss, model.layers[-1].trainable_variables)

        wrap(dense_gradient)()
    assert updates(layer.table) == 0
    assert np.array_equal(rows_of(layer, KEYS.reshape(-1)), before)
