# SPDX-License-Identifier: Apache-2.0
"""Weighted pooling equals tf.nn.embedding_lookup_sparse on the same rows, and so do the gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
from helpers.elastic.tables import new_rows, rows_of

# The last key of each row occurs twice; row 1 is empty, and the weights of row 3 add up to zero.
KEYS = tf.SparseTensor([[0, 0], [0, 1], [0, 2], [2, 0], [3, 0], [3, 1]], [1, 2, 2, 3, 1, 1], [4, 3])
WEIGHTS = tf.constant([0.5, 2.0, -1.0, 3.0, 1.0, -1.0])
UPSTREAM = tf.constant(np.random.default_rng(5).normal(size=(4, 4)), tf.float32)


def _trained(combiner: str, weights: tf.Tensor | None, form: str) -> tuple[Any, Any, Any, Any]:
    """Return outputs, the gradient of the weights, and the rows of keys 0 to 3 before and after a step of SGD(1)."""
    each = et.HashEmbedding(4, optimizer=et.SGD(1.0), seed=3)
    before = new_rows(each, range(4))
    layer = et.HashEmbedding(table=each.table, combiner=combiner)
    keys: Any = KEYS
    given: Any = None if weights is None else KEYS.with_values(weights)
    if form == "ragged":
        keys = tf.RaggedTensor.from_sparse(KEYS)
        given = None if weights is None else keys.with_values(weights)
    with tf.GradientTape() as tape:
        if weights is not None:
            tape.watch(weights)
            given = given.with_values(weights)
        outputs = layer(keys, weights=given, training=True)
        loss = tf.reduce_sum(outputs * UPSTREAM)
    sources = [layer.trap] if weights is None else [layer.trap, weights]
    gradients = tape.gradient(loss, sources)
    return outputs.numpy(), gradients[-1], before, rows_of(each, range(4))


@pytest.mark.parametrize("form", ["sparse", "ragged"])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_pooling_equals_embedding_lookup_sparse(combiner: str, weights: tf.Tensor | None, form: str) -> None:
    outputs, of_weights, before, after = _trained(combiner, weights, form)
    dense = tf.Variable(before)
    with tf.GradientTape() as tape:
        if weights is not None:
            tape.watch(weights)
        sparse = None if weights is None else KEYS.with_values(weights)
        expected = tf.nn.embedding_lookup_sparse(dense, KEYS, sparse, combiner=combiner)
        loss = tf.reduce_sum(expected * UPSTREAM)
    of_rows, *expected_of_weights = tape.gradient(loss, [dense] if weights is None else [dense, weights])
    np.testing.assert_allclose(outputs, expected.numpy(), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(after, before - tf.convert_to_tensor(of_rows).numpy(), rtol=1e-5, atol=1e-6)
    if weights is not None:
        np.testing.assert_allclose(of_weights.numpy(), expected_of_weights[0].numpy(), rtol=1e-5, atol=1e-6)


def test_weights_from_a_layer_are_trained() -> None:
    # As in attention: the weights of keys come from a model, which learns too.
    layer = et.HashEmbedding(4, optimizer=et.SGD(0.1), combiner="mean")
    keys = tf.constant([[1, 2], [3, 1]])
    logits = tf.Variable([[0.5, -0.5], [1.0, 0.0]])
    with tf.GradientTape() as tape:
        outputs = layer(keys, weights=tf.nn.softmax(logits), training=True)
        loss = tf.reduce_sum(outputs * UPSTREAM[:2])
    gradient, token = tape.gradient(loss, [logits, layer.trap])
    assert np.all(gradient.numpy() != 0)
    assert float(token) == 0
