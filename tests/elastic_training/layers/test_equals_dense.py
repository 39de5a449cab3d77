# SPDX-License-Identifier: Apache-2.0
"""Rows are those of a dense weight that Keras trains with the same optimizer on the same batches.

Keras 3 squares the gradients of an Embedding before it adds those of equal keys, so an Embedding is the reference only
where no key occurs twice in a batch. The other reference is the same weight behind a one-hot product.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import elastic_training as et
from elastic_training.optimizers import Optimizer
from helpers.elastic.tables import new_rows, rows_of

VOCABULARY, DIM, BATCH, STEPS = 60, 8, 16, 30
_RANDOM = np.random.default_rng(11)
REPEATED = _RANDOM.integers(0, VOCABULARY, (BATCH * STEPS, 3))
# Every key in every batch: Adam counts steps of rows, and FTRL of Keras changes rows without a gradient.
ALL = np.concatenate([_RANDOM.permutation(BATCH * 3).reshape(BATCH, 3) for _ in range(STEPS)])
DISTINCT = np.concatenate([_RANDOM.permutation(VOCABULARY)[: BATCH * 3].reshape(BATCH, 3) for _ in range(STEPS)])
LABELS = _RANDOM.normal(size=(BATCH * STEPS, 1)).astype(np.float32)


def _one_hot(before: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    kernel = keras.layers.Dense(DIM, use_bias=False, kernel_initializer=keras.initializers.Constant(before))
    return keras.Sequential([keras.layers.CategoryEncoding(VOCABULARY, "one_hot"), kernel]), kernel


def _embedding(before: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    layer = keras.layers.Embedding(VOCABULARY, DIM, embeddings_initializer=keras.initializers.Constant(before))
    return layer, layer


def _fitted(embedding: Any, optimizer: Any, keys: Any) -> keras.Model:
    inputs = keras.Input((3,), dtype="int64")
    hidden = keras.layers.Flatten()(embedding(inputs))
    dense = keras.layers.Dense(1, kernel_initializer=keras.initializers.RandomNormal(stddev=0.3, seed=2))
    model = keras.Model(inputs, dense(hidden))
    model.compile(optimizer, "mse")
    model.fit(keys, LABELS, batch_size=BATCH, shuffle=False, verbose=0)
    return model


REFERENCES = {"distinct": (_embedding, DISTINCT), "repeated": (_one_hot, REPEATED), "all": (_embedding, ALL)}
CASES: list[tuple[str, Optimizer, Any]] = [
    ("distinct repeated", et.SGD(0.2), lambda: keras.optimizers.SGD(0.2)),
    ("distinct repeated", et.Adagrad(0.1), lambda: keras.optimizers.Adagrad(0.1)),
    ("distinct", et.GroupAdagrad(0.1), lambda: keras.optimizers.Adagrad(0.1)),
    ("all", et.Adam(0.01), lambda: keras.optimizers.Adam(0.01)),
    ("all", et.Ftrl(0.1), lambda: keras.optimizers.Ftrl(0.1)),
    (
        "repeated",
        et.SGD(keras.optimizers.schedules.CosineDecay(0.2, STEPS)),
        lambda: keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.2, STEPS)),
    ),
]


@pytest.mark.parametrize(
    ("reference", "own", "of_keras"), [(name, *case) for keys, *case in CASES for name in keys.split()]
)
def test_rows_equal_those_of_a_dense_weight(reference: str, own: Optimizer, of_keras: Any) -> None:
    make, keys = REFERENCES[reference]
    layer = et.HashEmbedding(DIM, optimizer=own)
    before = new_rows(layer, range(VOCABULARY))
    dense, holder = make(before)
    expected = _fitted(dense, of_keras(), keys)
    model = _fitted(layer, of_keras(), keys)
    after, seen = rows_of(layer, range(VOCABULARY)), np.unique(keys)
    np.testing.assert_allclose(after[seen], holder.weights[0].numpy()[seen], rtol=1e-4, atol=2e-6)
    assert np.abs(after - before).max() > 0.01
    np.testing.assert_allclose(model.predict(keys, verbose=0), expected.predict(keys, verbose=0), rtol=1e-3, atol=1e-5)
