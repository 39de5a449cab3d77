# SPDX-License-Identifier: Apache-2.0
"""`RecHeadAttention` against TensorFlow."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.tensors import Array
from helpers.oracles.op_graphs import error_of, run_op, uniform

run = partial(run_op, "RecHeadAttention")


def reference(query: Array, key: Array, value: Array, heads: int, scale: float, masked: Any) -> Any:
    """Compute it with stock ops."""
    q, k, v = (
        tf.transpose(tf.reshape(tensor, [*tensor.shape[:2], heads, tensor.shape[2] // heads]), [0, 2, 1, 3])
        for tensor in (query, key, value)
    )
    weights = tf.nn.softmax(masked(tf.matmul(q, k, transpose_b=True) * scale))
    made = tf.transpose(tf.matmul(weights, v), [0, 2, 1, 3])
    return tf.reshape(made, [*query.shape[:2], value.shape[2]])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sizes", [(0, 3, 4), (1, 1, 1), (2, 5, 7), (67, 13, 8), (33, 50, 32)])
@pytest.mark.parametrize("heads", [1, 3])
def test_attention_equals_stock_tensorflow(sizes: tuple[int, int, int], heads: int, threads: int) -> None:
    rows, positions, dim = sizes
    query, key = (uniform(rows, positions + more, heads * dim, seed=more) for more in (0, 2))
    value = uniform(rows, positions + 2, heads * (dim + 1), seed=7)
    expected = reference(query, key, value, heads, 0.3, lambda x: x)
    found = run([query, key, value], threads, heads=heads, scale=0.3)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_masks_equal_stock_tensorflow() -> None:
    query, key, value = (uniform(4, 6, 8, seed=i) for i in range(3))
    bias, gate = uniform(1, 2, 6, 6, seed=4), uniform(4, 6, seed=5)
    condition = np.random.default_rng(0).random((4, 1, 1, 6)) < 0.5
    attributes = {"heads": 2, "padding": -1e9, "num_biases": 1, "num_conditions": 1, "num_gates": 1}
    found = run([query, key, value, bias, condition, gate], **attributes)
    expected = reference(query, key, value, 2, 1.0, lambda x: tf.where(condition, x + bias, -1e9)) * gate[..., None]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_heads_may_have_a_dimension_of_their_own() -> None:
    query, key, value = (uniform(3, 4, 6, seed=i) for i in range(3))
    whole = run([query, key, value], heads=2)
    apart = run([tensor.reshape(3, 4, 2, 3) for tensor in (query, key, value)], heads=2, keep_dims=True)
    assert apart.shape == (3, 4, 2, 3)
    np.testing.assert_array_equal(apart.reshape(3, 4, 6), whole)


def test_wrong_inputs_are_refused() -> None:
    refusal = partial(error_of, "RecHeadAttention")
    x = uniform(2, 3, 6)
    assert "[batch, queries, 4 * dim]" in refusal([x, x, x], heads=4)
    assert "[batch, keys, 2 * value_dim]" in refusal([x, x, uniform(2, 4, 6)], heads=2)
    assert "[batch, keys, 2 * dim]" in refusal([x, uniform(2, 3, 4), x], heads=2)
    assert "bias: shape [3,3], expected [2, 2, 3, 3]" in refusal([x, x, x, uniform(3, 3)], heads=2, num_biases=1)
    assert "gate: shape [2,2], expected [2, 3]" in refusal([x, x, x, uniform(2, 2)], heads=2, num_gates=1)
    bias = uniform(1, 1, 1, 1)
    assert "expected at most one of each" in refusal([x, x, x, bias, bias], heads=2, num_biases=2)
