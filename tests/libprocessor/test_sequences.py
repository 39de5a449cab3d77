# SPDX-License-Identifier: Apache-2.0
"""`RecSequencePooling` and `RecTargetAttention` against TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.tensors import Array
from helpers.oracles.op_graphs import assert_close, error_of, run_op, uniform

SHAPES = [(0, 3, 4), (1, 1, 1), (1, 20, 16), (3, 7, 5), (67, 13, 8), (40, 50, 32)]


def masks(rows: int, length: int) -> dict[str, Array]:
    """Make masks: the first sequence has no position that counts, and some have more than there are."""
    lengths = np.random.default_rng(rows).integers(-1, length + 2, rows)
    lengths[:1] = 0
    bools = np.random.default_rng(rows).integers(0, 2, (rows, length)).astype(bool)
    bools[:1] = False
    return {
        "bool": bools,
        "float": bools.astype(np.float32)[:, :, None],
        "weights": uniform(rows, length, seed=3),
        "int32": lengths.astype(np.int32),
        "int64": lengths.astype(np.int64)[:, None],
    }


def weights_of(mask: Array, length: int) -> Any:
    if mask.dtype.kind == "i":
        return tf.sequence_mask(mask.reshape(-1), length, tf.float32)
    return mask.reshape(len(mask), length).astype(np.float32)


# RecSequencePooling


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["bool", "float", "weights", "int32", "int64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_pooling_equals_the_formula(shape: tuple[int, int, int], kind: str, threads: int) -> None:
    x = uniform(*shape)
    mask = masks(*shape[:2])[kind]
    weights = weights_of(mask, shape[1])[:, :, None]
    attributes: dict[str, Any] = {"Tmask": mask.dtype}

    def pooled(combiner: str, **more: Any) -> Array:
        return run_op("RecSequencePooling", [x, mask], threads, combiner=combiner, **attributes, **more)

    sums = tf.reduce_sum(x * weights, 1)
    count = tf.reduce_sum(weights, 1)
    assert_close(pooled("sum"), sums)
    assert_close(pooled("sum", keep_dims=True), sums[:, None])
    shifted = tf.reduce_max(x - (1 - weights) * 1e3, 1)
    if shape[0]:
        assert_close(pooled("max", padding=-1e3, shift=True), shifted)
        assert_close(pooled("max", padding=-2.5), tf.reduce_max(tf.where(weights != 0, x, -2.5), 1))
    if kind != "weights":
        assert_close(pooled("mean", epsilon=1e-8), sums / (count + 1e-8))
        assert_close(pooled("mean", least=1.0), sums / tf.maximum(count, 1))
        assert_close(pooled("mean", least=1e-30), tf.math.divide_no_nan(sums, count))
    if kind.startswith("int"):
        # A length below 0 is no positions, and yet divides.
        expected = sums / (mask.reshape(-1, 1).astype(np.float32) + 0.5)
        assert_close(pooled("mean", epsilon=0.5, least=-9.0, by_length=True), expected)


def test_mean_of_an_empty_sequence_is_nan() -> None:
    x, mask = uniform(2, 3, 4), np.array([[True, False, True], [False, False, False]])
    found = run_op("RecSequencePooling", [x, mask], combiner="mean", Tmask=mask.dtype)
    assert np.isfinite(found[0]).all()
    assert np.isnan(found[1]).all()


def test_pooling_refuses_wrong_inputs() -> None:
    x = uniform(2, 3, 4)

    def said(values: Array, mask: Array) -> str:
        return error_of("RecSequencePooling", [values, mask], combiner="sum", Tmask=mask.dtype)

    assert "mask: shape [2,4], expected a mask of 2 sequences of 3" in said(x, np.ones((2, 4), bool))
    assert "mask: shape [3], expected lengths of 2 sequences" in said(x, np.ones(3, np.int64))
    assert "rank 3" in said(uniform(2, 3), np.ones((2, 3), bool)) or "expected [rows, length, dim]" in said(
        uniform(2, 3), np.ones((2, 3), bool)
    )


# RecTargetAttention

PARTS: dict[str, Any] = {
    "query": lambda q, k: q + 0 * k,
    "key": lambda q, k: k + 0 * q,
    "query-key": lambda q, k: q - k,
    "key-query": lambda q, k: k - q,
    "product": lambda q, k: q * k,
}
ACTIVATIONS: dict[str, Any] = {
    "": lambda x, w: x,
    "relu": lambda x, w: tf.nn.relu(x),
    "leaky_relu": lambda x, w: tf.nn.leaky_relu(x, 0.25),
    "sigmoid": lambda x, w: tf.sigmoid(x),
    "tanh": lambda x, w: tf.tanh(x),
    "prelu": lambda x, w: tf.maximum(x, 0) + w[0] * tf.minimum(x, 0),
    "dice": lambda x, w: (p := tf.sigmoid(x * w[1] + w[2])) * x + (1 - p) * w[0] * x,
}
COUNTS = {"prelu": 1, "dice": 3}


class Unit:
    """An attention unit with weights of its own."""

    def __init__(self, dim: int, parts: list[str], units: list[int], activation: str) -> None:
        self.parts = parts
        self.activations = [activation] * (len(units) - 1) + [""]
        self.weights: list[Array] = []
        inputs = len(parts) * dim
        for i, (size, name) in enumerate(zip(units, self.activations, strict=True)):
            self.weights += [uniform(inputs, size, seed=i) * np.float32(2 / np.sqrt(inputs)), uniform(size, seed=i)]
            self.weights += [uniform(size if j else 1, seed=10 * i + j) for j in range(COUNTS.get(name, 0))]
            inputs = size

    def expected(self, query: Array, keys: Array, weights: Any, softmax: bool, padding: float, scale: float) -> Any:
        x = tf.concat([PARTS[part](query[:, None], keys) for part in self.parts], -1)
        left = list(self.weights)
        for name in self.activations:
            kernel, bias = left.pop(0), left.pop(0)
            more = [left.pop(0) for _ in range(COUNTS.get(name, 0))]
            x = ACTIVATIONS[name](tf.matmul(x, kernel) + bias, more)
        scores = tf.transpose(x, [0, 2, 1])
        scores = tf.where(tf.cast(weights, tf.bool)[:, None], scores, padding) * scale
        return tf.matmul(tf.nn.softmax(scores) if softmax else scores, keys)

    def run(self, query: Array, keys: Array, mask: Array | None, threads: int = 1, **attributes: Any) -> Array:
        # A second mask lets everything count.
        given = [] if mask is None else [mask, np.full(mask.shape, 1000, mask.dtype)] if len(mask) % 2 else [mask]
        return run_op(
            "RecTargetAttention", [query, keys, *given, *self.weights], threads, num_masks=len(given),
            Tmask=np.bool_ if mask is None else mask.dtype.type, num_weights=len(self.weights), parts=self.parts,
            activations=self.activations, alphas=[0.25] * len(self.activations), **attributes,
        )  # fmt: skip


ALL = ["query", "key", "query-key", "product"]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["bool", "float", "int32", "int64", ""])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_equals_the_formula(shape: tuple[int, int, int], kind: str, threads: int) -> None:
    rows, length, dim = shape
    query, keys = uniform(rows, dim, seed=1), uniform(*shape)
    mask = masks(rows, length)[kind] if kind else None
    weights = np.ones((rows, length), np.float32) if mask is None else weights_of(mask, length)
    unit = Unit(dim, ALL, [16, 8, 1], "sigmoid")
    for softmax, padding, scale in ((False, 0.0, 1.0), (True, -4294967295.0, 1.0), (True, -9.0, 0.25)):
        expected = unit.expected(query, keys, weights, softmax, padding, scale)
        attributes: dict[str, Any] = {"softmax": softmax, "padding": padding, "scale": scale}
        assert_close(unit.run(query, keys, mask, threads, **attributes), expected[:, 0])
        assert_close(unit.run(query[:, None], keys, mask, threads, keep_dims=True, **attributes), expected)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("parts", [["key-query", "product"], ["product"], ["query"], ["key", "key", "query"]])
def test_attention_networks_equal_the_formula(parts: list[str], activation: str) -> None:
    query, keys = uniform(9, 6, seed=1), uniform(9, 11, 6)
    mask = masks(9, 11)["bool"]
    for units in ([1], [80, 40, 1], [5, 1]):
        unit = Unit(6, parts, units, activation)
        expected = unit.expected(query, keys, mask, True, -1e9, 1.0)
        assert_close(unit.run(query, keys, mask, softmax=True, padding=-1e9), expected[:, 0])


def test_attention_refuses_wrong_inputs() -> None:
    unit = Unit(4, ALL, [8, 1], "prelu")
    query, keys, mask = uniform(2, 4), uniform(2, 3, 4), np.ones((2, 3), bool)

    def said(place: int, weight: Array) -> str:
        other = Unit(4, ALL, [8, 1], "prelu")
        other.weights[place] = weight
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            other.run(query, keys, mask)
        return str(caught.value)

    assert "weight 0: shape [17,8], expected [a multiple of 4, units]" in said(0, uniform(17, 8))
    assert "weight 1: shape [7], expected [8]" in said(1, uniform(7))
    assert "weight 2: shape [7], expected [8]" in said(2, uniform(7))
    assert "weight 3: shape [8,2], expected [8, 1]" in said(3, uniform(8, 2))
    assert "keys: shape [2,3,5], expected [rows, length, 4]" in _failure(unit, query, uniform(2, 3, 5), mask)
    assert "query: shape [3,4], expected 2 of 4 elements" in _failure(unit, uniform(3, 4), keys, mask)
    assert "mask: shape [2,4]" in _failure(unit, query, keys, np.ones((2, 4), bool))
    unit.weights.pop()
    assert "num_weights: 4, expected 5 for these activations" in _failure(unit, query, keys, mask)


def _failure(unit: Unit, query: Array, keys: Array, mask: Array) -> str:
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        unit.run(query, keys, mask)
    return str(caught.value)
