# SPDX-License-Identifier: Apache-2.0
"""What a loop of the user does with gradients that does not reach rows is refused before a row changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et

_KEYS = tf.constant([1])


def _layer(**clipping: float) -> et.HashEmbedding:
    layer = et.HashEmbedding(4, optimizer=et.SGD(1.0, **clipping), embeddings_initializer="zeros")
    layer(_KEYS, training=True)
    return layer


def _row(layer: et.HashEmbedding) -> list[float]:
    return list(layer.table.read([1]).weights.numpy()[0])


def _clip_together(layer: et.HashEmbedding) -> None:
    with tf.GradientTape() as tape:
        loss = 1000 * tf.reduce_sum(layer(_KEYS))
    tf.clip_by_global_norm(tape.gradient(loss, layer.trainable_variables), 1.0)


def _clip_each(layer: et.HashEmbedding) -> None:
    with tf.GradientTape() as tape:
        loss = 1000 * tf.reduce_sum(layer(_KEYS))
    _ = [tf.clip_by_norm(gradient, 1.0) for gradient in tape.gradient(loss, layer.trainable_variables)]


_clipping = keras.optimizers.SGD(0.1, clipnorm=1.0)
_scaling = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))


def _optimizer_clips(layer: et.HashEmbedding) -> None:
    with tf.GradientTape() as tape:
        loss = 1000 * tf.reduce_sum(layer(_KEYS))
    gradients = tape.gradient(loss, layer.trainable_variables)
    _clipping.apply_gradients(zip(gradients, layer.trainable_variables, strict=True))


class _Loop:
    def __init__(self) -> None:
        self.optimizer = keras.optimizers.Adam(0.1, clipvalue=0.5)

    def step(self, layer: et.HashEmbedding) -> None:
        with tf.GradientTape() as tape:
            loss = 1000 * tf.reduce_sum(layer(_KEYS))
        self.optimizer.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)


def _optimizer_scales(layer: et.HashEmbedding) -> None:
    with tf.GradientTape() as tape:
        loss = _scaling.scale_loss(tf.reduce_sum(layer(_KEYS)))
    _scaling.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)


@pytest.mark.parametrize("wrap", [lambda step: step, tf.function], ids=["eager", "graph"])
@pytest.mark.parametrize(
    ("step", "message"),
    [
        (_clip_together, r"tf.clip_by_global_norm in the function that calls tape.gradient .* expected clipnorm"),
        (_clip_each, r"tf.clip_by_norm in the function that calls"),
        (_optimizer_clips, "SGD has clipnorm=1.0, which does not reach rows"),
        (lambda layer: _Loop().step(layer), "Adam has clipvalue=0.5, which does not reach rows"),
        (_optimizer_scales, r"LossScaleOptimizer, which scales the loss, expected et.loss_scale\(optimizer\)"),
    ],
)
def test_refused_before_a_row_changes(wrap: Any, step: Callable[[et.HashEmbedding], None], message: str) -> None:
    layer = _layer()
    with pytest.raises(ValueError, match=message):
        wrap(step)(layer)
    assert _row(layer) == [0, 0, 0, 0]


def test_clipping_of_the_table_is_enough() -> None:
    for step in (_clip_together, _clip_each):
        layer = _layer(clipnorm=1.0)
        step(layer)
        np.testing.assert_allclose(_row(layer), [-0.5] * 4)
        free = _layer(clipnorm=math.inf)
        step(free)
        assert _row(free) == [-1000] * 4


def test_loop_without_clipping_may_name_such_an_optimizer_elsewhere() -> None:
    layer = _layer()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(_KEYS))
    tape.gradient(loss, layer.trainable_variables)
    assert _row(layer) == [-1] * 4
