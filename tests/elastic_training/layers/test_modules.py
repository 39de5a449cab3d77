# SPDX-License-Identifier: Apache-2.0
"""The layers as tf.Module, in models and loops without Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
from helpers.elastic.tables import updates

KEYS = tf.constant([["a", "b"], ["c", "a"]])


class Model(tf.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.embedding = et.HashEmbeddingModule(4, optimizer=et.SGD(0.1), combiner="sum", **options)
        self.kernel = tf.Variable(tf.ones([4, 1]))

    def __call__(self, keys: Any, training: bool | None = None) -> tf.Tensor:
        return self.embedding(keys, training=training) @ self.kernel


@pytest.mark.parametrize("training", [True, None])
@pytest.mark.parametrize("wrap", [tf.function, lambda step: step], ids=["graph", "eager"])
def test_module_trains_in_a_plain_loop(wrap: Callable[[Any], Any], training: bool | None) -> None:
    model = Model()

    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(KEYS, training=training) - [[1.0], [-1.0]]))
        for variable, gradient in zip(
            model.trainable_variables, tape.gradient(loss, model.trainable_variables), strict=True
        ):
            variable.assign_sub(0.1 * gradient)
        return loss

    step = wrap(step)
    losses = [float(step()) for _ in range(20)]
    assert len(model.trainable_variables) == 2
    assert updates(model.embedding.table) == 20
    assert losses[-1] < 0.1 * losses[0]
    assert float(model.embedding.trap) == 0


def test_inference_writes_nothing() -> None:
    model = Model()
    model(KEYS)
    tf.function(model)(KEYS)
    model(KEYS, training=False)
    assert model.embedding.table.size() == 0


def test_gradient_without_the_trap_writes_no_rows() -> None:
    model = Model()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(KEYS, training=True))
    tape.gradient(loss, [model.kernel])
    assert updates(model.embedding.table) == 0


def test_features_share_one_op() -> None:
    module = et.FeatureEmbeddingsModule(
        {"user": et.Feature(), "item": et.Feature(8, combiner="mean")}, dim=4, optimizer=et.SGD(0.1)
    )
    outputs = module({"user": KEYS[:, 0], "item": KEYS}, training=True)
    assert {name: rows.shape.as_list() for name, rows in outputs.items()} == {"user": [2, 4], "item": [2, 8]}
    assert set(module.tables) == {"user", "item"}
    assert np.all(np.any(outputs["user"].numpy() != 0, axis=1))
