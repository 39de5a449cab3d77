# SPDX-License-Identifier: Apache-2.0
"""`step`: lookups with a step of Adagrad, beside TFRA, TensorFlow's fused op and Keras 3 on a dense table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from load_tests._report import Target
from load_tests.elastic.own_rows import EPSILON, OwnRows
from load_tests.elastic.rounds import alternate, cpu_rate, ratio
from load_tests.elastic.setup import (
    ACCUMULATOR,
    BATCH,
    DIM,
    RATE,
    Setup,
    adagrad,
    batches_of,
    keys_of,
    one_thread,
    values_of,
)
from load_tests.elastic.tfra import Tfra

__all__ = ["judge", "measure"]

LEAST = 3e6
_BATCHES = 64
Numbers = NDArray[np.int64]


def _fused(keys: int) -> tuple[Any, Callable[[Any, Any], object]]:
    """Return a dense variable and its step: a gather, and the op that TensorFlow has for Adagrad on some rows."""
    import tensorflow as tf

    weights = tf.Variable(values_of(np.arange(keys)))
    accumulators = tf.Variable(tf.fill([keys, DIM], ACCUMULATOR))

    def step(positions: Any, gradients: Any) -> None:
        tf.raw_ops.ResourceGather(resource=weights.handle, indices=positions, dtype=tf.float32)
        tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=weights.handle,
            accum=accumulators.handle,
            lr=RATE,
            epsilon=EPSILON,
            grad=gradients,
            indices=positions,
        )

    return weights, step


def _keras(keys: int) -> tuple[Any, Callable[[Any, Any], object]]:
    """Return the table of an Embedding of Keras 3, and its step with Keras' own Adagrad."""
    import keras
    import tensorflow as tf

    layer = keras.layers.Embedding(keys, DIM)
    layer.build(None)
    layer.embeddings.assign(values_of(np.arange(keys)))
    optimizer = keras.optimizers.Adagrad(RATE, initial_accumulator_value=ACCUMULATOR, epsilon=EPSILON)
    optimizer.build([layer.embeddings])

    def step(positions: Any, gradients: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(positions) * gradients)
        optimizer.apply([tape.gradient(loss, layer.embeddings.value)], [layer.embeddings])

    return layer.embeddings.value, tf.function(step, reduce_retracing=True)


def _wrong(table: Any, step: Callable[[Any, Any], object], numbers: Numbers, gradients: Any) -> int:
    """Make the first step of a dense table, and return how many rows differ from the formula in NumPy by over 1e-6."""
    import tensorflow as tf

    step(tf.constant(numbers), tf.constant(gradients))
    expected = adagrad(values_of(numbers), ACCUMULATOR, gradients, EPSILON)
    return int((np.abs(tf.gather(table, numbers).numpy() - expected) > 1e-6).any(axis=1).sum())


def measure(setup: Setup) -> dict[str, Any]:
    """Return rows per CPU-second of each contestant, and how many answers were wrong."""
    one_thread()
    import tensorflow as tf

    rows = OwnRows(setup.keys)
    numbers = batches_of(setup.keys, BATCH, _BATCHES)
    gradients = np.random.default_rng(1).normal(size=(BATCH, DIM)).astype(np.float32)
    wrong = rows.wrong_steps(numbers[0], gradients)
    ready, positions = [tf.constant(keys_of(part)) for part in numbers], [tf.constant(part) for part in numbers]
    gradient = tf.constant(gradients)

    def run(step: Callable[[Any, Any], object], batches: list[Any]) -> Callable[[], float]:
        return lambda: cpu_rate(lambda turn: step(batches[turn % _BATCHES], gradient), BATCH, setup.seconds)

    contestants = {"elastic": run(rows.step, ready)}
    for name, make in {"TensorFlow, fused op": _fused, "Keras 3": _keras}.items():
        table, step = make(setup.keys)
        wrong += _wrong(table, step, numbers[0], gradients)
        contestants[name] = run(step, positions)
    with Tfra(setup.keys, BATCH) as tfra:
        if tfra.absent is None:
            wrong += tfra.found["wrong_steps"]
            contestants["TFRA"] = lambda: tfra.rate("step", setup.seconds)
        speeds = alternate(contestants, setup.rounds)
        over = {name: ratio(speeds, "elastic", name) for name in speeds if name != "elastic"}
        known = {"keys": setup.keys, "batch": BATCH, "wrong": wrong, "tfra": tfra.absent or tfra.found}
        return known | speeds | {"times": over}


def judge(case: dict[str, Any]) -> list[Target]:
    """Return the target."""
    return [Target("lookup and Adagrad step, rows per CPU-second", case["elastic"]["median"], LEAST, at_least=True)]
