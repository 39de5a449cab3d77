# SPDX-License-Identifier: Apache-2.0
"""What the model's optimizer does with gradients reaches the rows, or is refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
from helpers.elastic.tables import new_rows, rows_of, updates

KEYS = np.array([[1, 2], [2, 3], [1, 1], [4, 2]], np.int64)
DISTINCT = [1, 2, 3, 4]
LABELS = np.array([[1.0], [0.0], [2.0], [-1.0]], np.float32)


def _model(optimizer: Any, **options: Any) -> tuple[keras.Model, et.HashEmbedding]:
    inputs = keras.Input((2,), dtype="int64")
    layer = et.HashEmbedding(4, optimizer=optimizer, embeddings_initializer=et.Uniform(-0.5, 0.5), seed=7, **options)
    return keras.Model(
        inputs, keras.layers.Lambda(lambda rows: tf.reduce_sum(rows, [1, 2])[:, None])(layer(inputs))
    ), layer


def _fitted(optimizer: Any, own: Any = None, **compile_options: Any) -> np.ndarray[Any, Any]:
    """Return the rows after one step of `fit` with the model's optimizer."""
    model, layer = _model(et.SGD(0.1) if own is None else own)
    new_rows(layer, DISTINCT)
    model.compile(optimizer, "mse", **compile_options)
    model.fit(KEYS, LABELS, batch_size=4, shuffle=False, verbose=0)
    return rows_of(layer, DISTINCT)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: keras.optimizers.SGD(0.1, loss_scale_factor=1024.0),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=4096.0),
    ],
    ids=["factor", "dynamic"],
)
@pytest.mark.parametrize("eager", [False, True])
def test_scaled_loss_gives_the_same_rows_in_fit(optimizer: Callable[[], Any], eager: bool) -> None:
    expected = _fitted(keras.optimizers.SGD(0.1))
    np.testing.assert_allclose(_fitted(optimizer(), run_eagerly=eager), expected, rtol=1e-6)


def test_scaled_loss_in_an_own_loop_is_told_or_refused() -> None:
    rows = []
    for optimizer in (keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.1, loss_scale_factor=64.0)):
        model, layer = _model(et.SGD(0.1))
        new_rows(layer, DISTINCT)
        with tf.GradientTape() as tape:
            loss = optimizer.scale_loss(tf.reduce_mean(tf.square(model(KEYS, training=True) - LABELS)))
        with et.loss_scale(optimizer):
            gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        rows.append(rows_of(layer, DISTINCT))
    np.testing.assert_allclose(rows[1], rows[0], rtol=1e-6)

    optimizer = keras.optimizers.SGD(0.1, loss_scale_factor=64.0)
    model, layer = _model(et.SGD(0.1))
    with tf.GradientTape() as tape:
        loss = optimizer.scale_loss(tf.reduce_sum(model(KEYS, training=True)))
    # The function that asks for gradients does not tell who takes them.
    gradients = (lambda: tape.gradient(loss, model.trainable_variables))()
    with pytest.raises(ValueError, match=r"SGD, which scales the loss, expected et.loss_scale\(optimizer\)"):
        optimizer.apply(gradients, model.trainable_variables)


def test_gradient_scaled_for_another_optimizer_is_refused() -> None:
    model, _ = _model(et.SGD(0.1))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(KEYS, training=True))
    with et.loss_scale(keras.optimizers.SGD(0.1, loss_scale_factor=64.0)):
        gradients = tape.gradient(loss, model.trainable_variables)
    with pytest.raises(ValueError, match="scaled for SGD, but Adam takes the gradient"):
        keras.optimizers.Adam().apply(gradients, model.trainable_variables)


def test_accumulated_gradients_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="SGD has gradient_accumulation_steps=2, expected None"):
        _fitted(keras.optimizers.SGD(0.1, gradient_accumulation_steps=2))


@pytest.mark.parametrize("field", ["clipnorm", "global_clipnorm", "clipvalue"])
def test_clipping_of_the_model_needs_a_statement_for_rows(field: str) -> None:
    clipping = keras.optimizers.SGD(0.1, **{field: 0.5})
    with pytest.raises(ValueError, match=f"HashEmbedding .*: SGD has {field}=0.5, which does not reach rows of tables"):
        _fitted(clipping)
    free = _fitted(keras.optimizers.SGD(0.1, **{field: 0.5}), et.SGD(0.1, clipnorm=math.inf))
    np.testing.assert_array_equal(free, _fitted(keras.optimizers.SGD(0.1)))


def test_clipping_of_the_model_is_refused_in_an_own_loop() -> None:
    model, _ = _model(et.SGD(0.1))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(KEYS, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    with pytest.raises(ValueError, match=r"SGD has clipnorm=0.5"):
        keras.optimizers.SGD(0.1, clipnorm=0.5).apply(gradients, model.trainable_variables)


@pytest.mark.parametrize("combiner", [None, "sum"])
@pytest.mark.parametrize("field", ["clipnorm", "clipvalue"])
def test_rows_are_clipped_as_keras_clips_a_dense_weight(field: str, combiner: str | None) -> None:
    # 0.05 is below the norms and values of this batch, so that clipping changes rows.
    own = et.SGD(0.1, **{field: 0.05})
    inputs = keras.Input((2,), dtype="int64")
    layer = et.HashEmbedding(4, optimizer=own, combiner=combiner)
    axes = [1, 2] if combiner is None else [1]
    model = keras.Model(inputs, keras.layers.Lambda(lambda rows: tf.reduce_sum(rows, axes)[:, None])(layer(inputs)))
    each = et.HashEmbedding(table=layer.table)
    before = new_rows(each, range(5))
    model.compile(keras.optimizers.SGD(0.1, **{field: 0.05}), "mse")
    model.fit(KEYS, LABELS, batch_size=4, shuffle=False, verbose=0)

    # An Embedding would be clipped before the gradients of equal keys are added.
    kernel = keras.layers.Dense(4, use_bias=False, kernel_initializer=keras.initializers.Constant(before))
    rows = keras.ops.sum(kernel(keras.ops.one_hot(inputs, 5)), axis=[1, 2])
    dense = keras.Model(inputs, keras.ops.expand_dims(rows, 1))
    dense.compile(keras.optimizers.SGD(0.1, **{field: 0.05}), "mse")
    dense.fit(KEYS, LABELS, batch_size=4, shuffle=False, verbose=0)
    np.testing.assert_allclose(rows_of(each, range(5)), kernel.kernel.numpy(), rtol=1e-6, atol=1e-7)
    assert not np.allclose(before, kernel.kernel.numpy(), atol=1e-4)


@pytest.mark.parametrize("wrap", [tf.function, lambda function: function], ids=["graph", "eager"])
def test_second_gradient_of_a_lookup_is_refused_by_name(wrap: Callable[[Any], Any]) -> None:
    model, layer = _model(et.SGD(0.1))

    def twice() -> None:
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_sum(model(KEYS, training=True))
        tape.gradient(loss, model.trainable_variables)
        tape.gradient(loss, model.trainable_variables)

    with pytest.raises(ValueError, match=r"HashEmbedding .*: a second tape.gradient through the same lookup"):
        wrap(twice)()
    assert updates(layer.table) <= 1


def test_schedule_counts_updates_of_the_table() -> None:
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([1], [0.5, 0.0])
    model, layer = _model(et.SGD(schedule))
    before = new_rows(layer, DISTINCT)
    model.compile("sgd", "mse")
    seen = [before]
    for _ in range(4):
        model.fit(KEYS, LABELS, batch_size=4, shuffle=False, verbose=0)
        seen.append(rows_of(layer, DISTINCT))
    # Steps 0 and 1 learn, later ones do not.
    assert [bool(np.any(one != other)) for one, other in pairwise(seen)] == [
        True,
        True,
        False,
        False,
    ]


def test_learning_rate_variable_takes_effect_at_once() -> None:
    rate = tf.Variable(0.0)
    model, layer = _model(et.SGD(rate))
    before = new_rows(layer, DISTINCT)
    model.compile("sgd", "mse")
    model.fit(KEYS, LABELS, batch_size=4, shuffle=False, verbose=0)
    assert np.array_equal(rows_of(layer, DISTINCT), before)
    rate.assign(0.1)
    model.fit(KEYS, LABELS, batch_size=4, shuffle=False, verbose=0)
    assert not np.array_equal(rows_of(layer, DISTINCT), before)


def test_mixed_precision_gives_half_outputs_and_float_rows() -> None:
    model, layer = _model(et.SGD(0.1), dtype="mixed_float16")
    before = new_rows(layer, DISTINCT)
    assert before.dtype == np.float16
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=1024.0)
    model.compile(optimizer, "mse")
    model.fit(KEYS, LABELS, batch_size=4, shuffle=False, verbose=0)
    assert updates(layer.table) == 1
    np.testing.assert_allclose(rows_of(layer, DISTINCT), _fitted(keras.optimizers.SGD(0.1)), atol=2e-3)
