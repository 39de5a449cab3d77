# SPDX-License-Identifier: Apache-2.0
"""`RecDenseTower` in stock TensorFlow computes what TensorFlow's own ops compute."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.tensors import Array
from helpers.oracles.op_graphs import Tower

BATCHES = (0, 1, 2, 7, 33, 200)


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    """Make float32 numbers between -scale and scale."""
    return np.random.default_rng(seed).uniform(-scale, scale, shape).astype(np.float32)


def matrix(k: int, units: int, seed: int) -> Array:
    """Make the weights of a layer, as small as trained ones are."""
    return numbers(k, units, seed=seed, scale=1.5 / np.sqrt(k))


def assert_close(found: Array, expected: Any, tolerance: float = 1e-5) -> None:
    assert found.shape == tuple(np.shape(expected))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def dense(source: str, weight: int, activation: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Make a dense layer of one input, with the bias after its weight."""
    layer = {"op": "dense", "inputs": [source], "weights": [weight], "bias": weight + 1, **more}
    return layer if activation is None else {**layer, "activation": activation}


RELU = {"kind": "relu"}


@pytest.fixture(scope="module")
def deep() -> tuple[list[dict[str, Any]], list[Array]]:
    """Layers 45-300-128-1 with relu."""
    widths = (45, 300, 128, 1)
    weights = []
    for i, (k, units) in enumerate(pairwise(widths)):
        weights += [matrix(k, units, i), numbers(units, seed=10 + i, scale=0.5)]
    return [dense("x0", 0, RELU), dense("h0", 2, RELU), dense("h1", 4)], weights


def deep_scores(x: Array, weights: list[Array]) -> Any:
    # As a matrix: TensorFlow 2.21's product of more dimensions with one column writes beyond its output (oneDNN on).
    rows = tf.reshape(x, [-1, x.shape[-1]])
    for i in range(0, 4, 2):
        rows = tf.nn.relu(rows @ weights[i] + weights[i + 1])
    return tf.reshape(rows @ weights[4] + weights[5], [*x.shape[:-1], 1])


@pytest.mark.parametrize("threads", [1, 2])
def test_chains_of_dense_layers_equal_the_formula(deep: Any, threads: int) -> None:
    layers, weights = deep
    tower = Tower(layers, ["h2"], inputs=1, weights=weights, threads=threads)
    for batch in BATCHES:
        x = numbers(batch, 45, seed=batch)
        assert_close(tower(x)[0], deep_scores(x, weights))


def test_bf16_is_near_and_the_same_in_every_batch(deep: Any) -> None:
    layers, weights = deep
    tower = Tower(layers, ["h2"], inputs=1, weights=weights, precision="bf16")
    x = numbers(200, 45, seed=3)
    scores = tower(x)[0]
    assert_close(scores, deep_scores(x, weights), 2e-2)
    assert np.abs(scores - deep_scores(x, weights)).max() > 1e-5
    for row in (0, 57, 199):
        assert_close(tower(x[row : row + 1])[0], scores[row : row + 1], 4e-3)


needs_int8 = pytest.mark.skipif(
    "avx512_vnni" not in Path("/proc/cpuinfo").read_text().split(), reason="the CPU has no AVX512_VNNI"
)


@needs_int8
def test_int8_is_near_and_the_same_in_every_batch(deep: Any) -> None:
    layers, weights = deep
    tower = Tower(layers, ["h2"], inputs=1, weights=weights, precision="int8")
    x = numbers(200, 45, seed=3)
    scores = tower(x)[0]
    assert_close(scores, deep_scores(x, weights), 3e-2)
    assert np.abs(scores - deep_scores(x, weights)).max() > 1e-4
    for row in (0, 57, 199):
        assert_close(tower(x[row : row + 1])[0], scores[row : row + 1], 1e-6)


@needs_int8
def test_layers_with_a_precision_are_nearer_than_int8() -> None:
    """A great number in each row makes the steps of its other numbers coarse."""
    weights = [matrix(45, 300, 0), matrix(300, 1, 1)]
    x = numbers(50, 45, seed=3)
    x[:, 7] = 100
    expected = tf.nn.relu(x @ weights[0]) @ weights[1]
    errors = {}
    for kept in ("int8", "bf16", "fp32"):
        first = {"op": "dense", "inputs": ["x0"], "weights": [0], "activation": RELU}
        if kept != "int8":
            first["precision"] = kept
        layers = [first, {"op": "dense", "inputs": ["h0"], "weights": [1]}]
        scores = Tower(layers, ["h1"], inputs=1, weights=weights, precision="int8")(x)[0]
        errors[kept] = np.abs(scores - expected).max()
    assert errors["int8"] > 2 * errors["bf16"] > 20 * errors["fp32"]


@needs_int8
def test_int8_is_refused_without_its_instructions() -> None:
    code = (
        "from helpers.oracles.op_graphs import Tower; import numpy as np\n"
        "ones = np.ones((2, 2), np.float32)\n"
        "layers = [{'op': 'dense', 'inputs': ['x0'], 'weights': [0]}]\n"
        "Tower(layers, ['h0'], inputs=1, weights=[ones], precision='int8')(ones)\n"
    )
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode != 0
    assert "precision: int8 on a CPU without AVX512_VNNI, expected bf16, fp32 or auto" in ended.stderr


def test_leading_dimensions_are_rows(deep: Any) -> None:
    layers, weights = deep
    tower = Tower(layers, ["h1", "h2", "x0"], inputs=1, weights=weights)
    x = numbers(3, 1, 7, 45)
    hidden, scores, same = tower(x)
    assert hidden.shape == (3, 1, 7, 128)
    assert_close(scores, deep_scores(x, weights))
    np.testing.assert_array_equal(same, x)
    assert tower(x[0, 0, 0])[1].shape == (1,)
    assert tower(np.zeros((0, 4, 45), np.float32))[1].shape == (0, 4, 1)


ACTIVATIONS = {
    "relu": tf.nn.relu,
    "relu6": tf.nn.relu6,
    "elu": tf.nn.elu,
    "selu": tf.nn.selu,
    "sigmoid": tf.sigmoid,
    "tanh": tf.tanh,
    "gelu": lambda x: tf.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: tf.nn.gelu(x, approximate=True),
    "swish": tf.nn.swish,
    "softplus": tf.nn.softplus,
    "softmax": tf.nn.softmax,
}


@pytest.mark.parametrize("kind", sorted(ACTIVATIONS))
def test_activations_equal_the_formula(kind: str) -> None:
    weight, bias = numbers(9, 37, seed=1, scale=3), numbers(37, seed=2)
    tower = Tower([dense("x0", 0, {"kind": kind})], ["h0"], inputs=1, weights=[weight, bias])
    for batch in (1, 40):
        x = numbers(batch, 9, seed=batch)
        assert_close(tower(x)[0], ACTIVATIONS[kind](x @ weight + bias))


def test_activations_with_weights_equal_the_formula() -> None:
    k = 21
    weights = [matrix(k, k, 0), numbers(k), numbers(k, seed=3), numbers(1, seed=4), numbers(k, seed=5, scale=2)]
    weights += [numbers(k, seed=6)]
    layers = [
        dense("x0", 0, {"kind": "prelu", "weight": 2}),
        dense("x0", 0, {"kind": "prelu", "weight": 3}),
        dense("x0", 0, {"kind": "dice", "weight": 2, "scale": 4, "shift": 5}),
        dense("x0", 0, {"kind": "leaky_relu", "alpha": 0.3}),
    ]
    tower = Tower(layers, ["h0", "h1", "h2", "h3"], inputs=1, weights=weights)
    for batch in (1, 17):
        x = numbers(batch, k, seed=batch)
        y = x @ weights[0] + weights[1]
        p = tf.sigmoid(y * weights[4] + weights[5])
        expected = [
            tf.nn.relu(y) - weights[2] * tf.nn.relu(-y),
            tf.nn.relu(y) - weights[3] * tf.nn.relu(-y),
            p * y + (1 - p) * weights[2] * y,
            tf.nn.leaky_relu(y, 0.3),
        ]
        for found, right in zip(tower(x), expected, strict=True):
            assert_close(found, right)


def test_experts_and_gates_equal_the_formula() -> None:
    weights = [matrix(16, 24, 0), numbers(24), matrix(16, 24, 2), numbers(24, seed=3), matrix(16, 2, 4)]
    weights += [numbers(2, seed=5), numbers(24, seed=6), numbers(24, seed=7), matrix(24, 1, 8), numbers(1, seed=9)]
    layers = [
        dense("x0", 0, RELU),
        dense("x0", 2, RELU),
        dense("x0", 4, {"kind": "softmax"}),
        {"op": "mix", "inputs": ["h2", "h0", "h1"]},
        {"op": "layer_norm", "inputs": ["h3"], "gamma": 6, "beta": 7, "epsilon": 1e-3},
        {"op": "affine", "inputs": ["h3"], "scale": 6, "shift": 7, "activation": {"kind": "tanh"}},
        {"op": "multiply", "inputs": ["h4", "h5"]},
        {"op": "add", "inputs": ["h6", "h0"], "activation": RELU},
        {"op": "concat", "inputs": ["h7", "x0"]},
        dense("h7", 8, {"kind": "sigmoid"}),
    ]
    tower = Tower(layers, ["h9", "h8"], inputs=1, weights=weights, threads=2)
    for batch in BATCHES:
        x = numbers(batch, 16, seed=batch)
        experts = [tf.nn.relu(x @ weights[i] + weights[i + 1]) for i in (0, 2)]
        gate = tf.nn.softmax(x @ weights[4] + weights[5])
        mixed = gate[:, :1] * experts[0] + gate[:, 1:] * experts[1]
        mean, variance = tf.nn.moments(mixed, [-1], keepdims=True)
        normed = tf.nn.batch_normalization(mixed, mean, variance, weights[7], weights[6], 1e-3)
        last = tf.nn.relu(normed * tf.tanh(mixed * weights[6] + weights[7]) + experts[0])
        score, wide = tower(x)
        assert_close(score, tf.sigmoid(last @ weights[8] + weights[9]))
        assert_close(wide, tf.concat([last, x], 1))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("items", [1, 2, 50])
def test_inputs_of_one_row_are_used_for_all_rows(items: int, precision: str) -> None:
    weights = [matrix(30, 64, 0), numbers(64), matrix(20, 64, 2), matrix(64, 8, 3), numbers(8, seed=4)]
    layers = [
        {"op": "dense", "inputs": ["x0", "x1"], "weights": [0, 2], "bias": 1, "add": ["x2"], "activation": RELU},
        {"op": "concat", "inputs": ["h0", "x2"]},
        {"op": "affine", "inputs": ["x0"], "activation": {"kind": "tanh"}},
        dense("h0", 3),
    ]
    tower = Tower(layers, ["h3", "h1", "h2"], inputs=3, weights=weights, precision=precision)
    user, item, bias = numbers(1, 30), numbers(items, 20, seed=1), numbers(1, 64, seed=2)
    hidden = tf.nn.relu(user @ weights[0] + item @ weights[2] + weights[1] + bias)
    scores, wide, user_row = tower(user, item, bias)
    tolerance = 1e-5 if precision == "fp32" else 2e-2
    assert_close(scores, hidden @ weights[3] + weights[4], tolerance)
    assert_close(wide, tf.concat([hidden, tf.repeat(bias, items, 0)], 1), tolerance)
    assert_close(user_row, tf.repeat(tf.tanh(user), items, 0))
    full = tower(np.repeat(user, items, 0), item, np.repeat(bias, items, 0))
    assert_close(scores, full[0])


def test_wrong_inputs_are_refused(deep: Any) -> None:
    layers, weights = deep
    tower = Tower(layers, ["h2"], inputs=1, weights=weights)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"node 'node': layer 0 \(dense\): input 0: 44 columns, ex"
    ):
        tower(numbers(3, 44))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"node 'node': input 0: a scalar, expected"):
        tower(np.float32(1))
    assert_close(tower(numbers(3, 45))[0], deep_scores(numbers(3, 45), weights))
    wrong = Tower(layers, ["h2"], inputs=1, weights=[*weights[:3], weights[3][:-1], *weights[4:]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"weight 3 has shape \[127\], expected the bias \[128\]"):
        wrong(numbers(3, 45))
    two = Tower([{"op": "add", "inputs": ["x0", "x1"]}], ["h0"], inputs=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"input 1: 4 rows .*, expected 3 as input 0 has, or 1"):
        two(numbers(3, 5), numbers(4, 5))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("", "not JSON"),
        ('{"version": 2, "layers": [], "outputs": ["x0"]}', "version: 2 found"),
        ('{"version": 1, "layers": [], "outputs": ["h0"]}', '"h0" found'),
        (
            '{"version": 1, "layers": [{"op": "add", "inputs": ["x0"], "gain": 2}], "outputs": ["h0"]}',
            "gain: unknown field",
        ),
    ],
)
def test_wrong_plans_are_refused(plan: str, message: str) -> None:
    tower = Tower([], ["x0"], inputs=1, plan=plan)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"node 'node': tower plan.*{message}"):
        tower(numbers(1, 1))
