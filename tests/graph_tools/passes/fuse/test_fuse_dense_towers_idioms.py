# SPDX-License-Identifier: Apache-2.0
"""Activations, normalizations and gates that take many nodes are one layer of a tower, however they are spelled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.graph_tools.pass_checks import from_graph, x_of
from helpers.graph_tools.tower_checks import fused, layers, towers

Spelling = Callable[[Any, Any], Any]
WIDTH = 6


def vector(v1: Any, name: str, low: float = -1.0) -> Any:
    """Make a variable [WIDTH] with elements from `low` to 1."""
    random = np.random.default_rng(sum(name.encode()))
    return v1.get_variable(name, initializer=random.uniform(low, 1.0, WIDTH).astype(np.float32))


def dense(v1: Any, x: Any, units: int, name: str) -> Any:
    random = np.random.default_rng(sum(name.encode()))
    kernel = v1.get_variable(name, initializer=random.normal(size=(int(x.shape[-1]), units)).astype(np.float32))
    return v1.matmul(x, kernel)


def erf_gelu(v1: Any, x: Any) -> Any:
    return 0.5 * x * (1.0 + v1.erf(x / 1.4142135623730951))


def erf_gelu_other(v1: Any, x: Any) -> Any:
    half = x * 0.5
    return v1.erf(x * 0.70710678) * half + half


def erfc_gelu(v1: Any, x: Any) -> Any:
    return 0.5 * x * v1.erfc(-x * 0.7071067811865476)


def tanh_gelu(v1: Any, x: Any) -> Any:
    return 0.5 * x * (1.0 + v1.tanh(0.7978845608028654 * (x + 0.044715 * v1.pow(x, 3.0))))


def tanh_gelu_other(v1: Any, x: Any) -> Any:
    return x * (0.5 * (1.0 + v1.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x))))


def swish(v1: Any, x: Any) -> Any:
    return x * v1.sigmoid(x)


def swish_by_exp(v1: Any, x: Any) -> Any:
    return x / (1.0 + v1.exp(-x))


def prelu_of_keras(v1: Any, x: Any) -> Any:
    return v1.nn.relu(x) - vector(v1, "alpha") * v1.nn.relu(-x)


def prelu_of_keras_3(v1: Any, x: Any) -> Any:
    return v1.nn.relu(x) + -vector(v1, "alpha") * v1.nn.relu(-x)


def prelu_by_abs(v1: Any, x: Any) -> Any:
    return v1.nn.relu(x) + vector(v1, "alpha") * (x - v1.abs(x)) * 0.5


def prelu_by_bounds(v1: Any, x: Any) -> Any:
    return v1.maximum(x, 0.0) + vector(v1, "alpha") * v1.minimum(x, 0.0)


def prelu_by_where(v1: Any, x: Any) -> Any:
    return v1.where_v2(x > 0.0, x, vector(v1, "alpha") * x)


def prelu_by_where_turned(v1: Any, x: Any) -> Any:
    return v1.where_v2(x < 0.0, vector(v1, "alpha") * x, x)


def leaky_by_maximum(v1: Any, x: Any) -> Any:
    return v1.maximum(x, 0.25 * x)


def relu_by_maximum(v1: Any, x: Any) -> Any:
    return v1.maximum(0.0, x) * 1.0 + 0.0 * x


def normed(v1: Any, x: Any) -> Any:
    return (x - vector(v1, "mean")) * v1.rsqrt(vector(v1, "variance", 0.1) + 1e-9)


def dice_of_deepctr(v1: Any, x: Any) -> Any:
    p = v1.sigmoid(normed(v1, x))
    return vector(v1, "alpha") * (1.0 - p) * x + p * x


def dice_of_the_paper(v1: Any, x: Any) -> Any:
    p = v1.sigmoid(v1.nn.batch_normalization(x, vector(v1, "mean"), vector(v1, "variance", 0.1), None, None, 1e-9))
    return x * (p + (1.0 - p) * vector(v1, "alpha"))


def swish_with_a_slope(v1: Any, x: Any) -> Any:
    return x * v1.sigmoid(1.5 * x)


def norm_of_deepctr(v1: Any, x: Any) -> Any:
    mean = v1.reduce_mean(x, -1, keepdims=True)
    variance = v1.reduce_mean(v1.square(x - mean), -1, keepdims=True)
    outputs = (x - mean) / v1.sqrt(v1.maximum(variance + 1e-3, 0.0))
    return outputs * vector(v1, "gamma") + vector(v1, "beta")


def norm_of_keras_3(v1: Any, x: Any) -> Any:
    mean, variance = v1.nn.moments(x, [-1], keepdims=True)
    inverse = v1.rsqrt(variance + 1e-3) * vector(v1, "gamma")
    return x * inverse + (vector(v1, "beta") - mean * inverse)


def norm_by_squares(v1: Any, x: Any) -> Any:
    mean = v1.reduce_mean(x, -1, keepdims=True)
    variance = v1.reduce_mean(x * x, -1, keepdims=True) - v1.square(mean)
    return (x - mean) * v1.rsqrt(variance + 1e-3)


def norm_of_keras_2(v1: Any, x: Any) -> Any:
    rows = v1.shape(x)[0]
    turned = v1.reshape(x, [1, rows, WIDTH, 1])
    ones, zeros = v1.fill([rows], 1.0), v1.fill([rows], 0.0)
    result = v1.raw_ops.FusedBatchNormV3(
        x=turned, scale=ones, offset=zeros, mean=[], variance=[], epsilon=1e-3, data_format="NCHW", is_training=True
    )[0]
    return v1.reshape(result, [rows, WIDTH]) * vector(v1, "gamma") + vector(v1, "beta")


SPELLINGS: dict[Spelling, str] = {
    erf_gelu: "gelu",
    erf_gelu_other: "gelu",
    erfc_gelu: "gelu",
    tanh_gelu: "gelu_tanh",
    tanh_gelu_other: "gelu_tanh",
    swish: "swish",
    swish_by_exp: "swish",
    prelu_of_keras: "prelu",
    prelu_of_keras_3: "prelu",
    prelu_by_abs: "prelu",
    prelu_by_bounds: "prelu",
    prelu_by_where: "prelu",
    prelu_by_where_turned: "prelu",
    leaky_by_maximum: "leaky_relu",
    relu_by_maximum: "relu",
    dice_of_deepctr: "dice",
    dice_of_the_paper: "dice",
    swish_with_a_slope: "dice",
}
OPS: dict[str, Spelling] = {
    "relu": lambda v1, x: v1.nn.relu(x),
    "relu6": lambda v1, x: v1.nn.relu6(x),
    "leaky_relu": lambda v1, x: v1.nn.leaky_relu(x, 0.1),
    "elu": lambda v1, x: v1.nn.elu(x),
    "selu": lambda v1, x: v1.nn.selu(x),
    "sigmoid": lambda v1, x: v1.sigmoid(x),
    "tanh": lambda v1, x: v1.tanh(x),
    "softplus": lambda v1, x: v1.nn.softplus(x),
    "softmax": lambda v1, x: v1.nn.softmax(x),
}
NORMS = [norm_of_deepctr, norm_of_keras_3, norm_by_squares, norm_of_keras_2]


@pytest.mark.parametrize("kind", OPS)
def test_activation_ops_are_part_of_layers(tmp_path: Path, kind: str) -> None:
    source = from_graph(tmp_path, lambda v1, x: OPS[kind](v1, 3.0 * dense(v1, x, WIDTH, "one")), 8)
    plans, left, _ = towers(source, x_of(8))
    assert layers(plans) == [f"dense {kind}"]
    assert not left


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda one: one.__name__)
def test_spelled_activations_are_part_of_layers(tmp_path: Path, spelling: Spelling) -> None:
    def build(v1: Any, x: Any) -> Any:
        return dense(v1, spelling(v1, dense(v1, x, WIDTH, "one") + vector(v1, "bias")), 2, "two")

    plans, left, _ = towers(from_graph(tmp_path, build, 8), x_of(8))
    assert layers(plans) == [f"dense {SPELLINGS[spelling]}", "dense"]
    assert not left


@pytest.mark.parametrize("spelling", NORMS, ids=lambda one: one.__name__)
def test_spelled_layer_normalization_is_a_layer(tmp_path: Path, spelling: Spelling) -> None:
    def build(v1: Any, x: Any) -> Any:
        y = dense(v1, x, WIDTH, "one")
        return dense(v1, v1.tanh(spelling(v1, y + dense(v1, v1.nn.relu(y), WIDTH, "two"))), 2, "three")

    plans, left, _ = towers(from_graph(tmp_path, build, 8), x_of(8))
    assert [layer.split()[0] for layer in layers(plans)].count("layer_norm") == 1
    norm = next(plan for plan in plans[0]["layers"] if plan["op"] == "layer_norm")
    assert norm["epsilon"] == pytest.approx(1e-3)
    assert ("gamma" in norm) == (spelling is not norm_by_squares)
    assert not left


def test_weights_of_idioms_stay_variables(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return norm_of_deepctr(v1, dense(v1, x, WIDTH, "one"))

    model, _ = fused(from_graph(tmp_path, build, 8))
    assert set(model.variables) == {"one", "gamma", "beta"}


LOOK_ALIKES: dict[str, Spelling] = {
    "gelu of another slope": lambda v1, x: 0.5 * x * (1.0 + v1.erf(x)),
    "dice of another sum": lambda v1, x: vector(v1, "alpha") * v1.sigmoid(x) * x + v1.sigmoid(x) * x,
    "sigmoid of another tensor": lambda v1, x: x * v1.sigmoid(v1.reverse(x, [1])),
    "mean over rows": lambda v1, x: x - v1.reduce_mean(x, 0, keepdims=True),
    "relu twice as steep": lambda v1, x: 2.0 * v1.nn.relu(x) - 0.5 * v1.nn.relu(-x),
    "bounds of rows": lambda v1, x: v1.maximum(x, v1.constant(np.ones((1, WIDTH), np.float32) * 0.3)),
}


@pytest.mark.parametrize("case", LOOK_ALIKES)
def test_similar_formulas_keep_their_scores(tmp_path: Path, case: str) -> None:
    def build(v1: Any, x: Any) -> Any:
        return dense(v1, LOOK_ALIKES[case](v1, dense(v1, x, WIDTH, "one")), 2, "two")

    plans, _, _ = towers(from_graph(tmp_path, build, 8), x_of(8))
    assert not {"gelu", "prelu", "leaky_relu"} & {
        one.get("activation", {}).get("kind") for plan in plans for one in plan["layers"]
    }


def gates(v1: Any, x: Any, experts: list[Any], how: str, name: str) -> Any:
    """Weigh experts as multi-task models do."""
    gate = v1.nn.softmax(dense(v1, x, len(experts), name))
    if how == "product":
        return v1.squeeze(v1.matmul(v1.expand_dims(gate, 1), v1.stack(experts, 1)), 1)
    times = v1.stack(experts, 1) * v1.expand_dims(gate, -1)
    return v1.reduce_sum(times, 1)


@pytest.mark.parametrize("how", ["sum", "product"])
def test_gates_over_shared_experts_become_one_tower(tmp_path: Path, how: str) -> None:
    def build(v1: Any, x: Any) -> Any:
        experts = [v1.nn.relu(dense(v1, x, WIDTH, f"expert_{i}")) for i in range(3)]
        tasks = [gates(v1, x, experts, how, f"gate_{i}") for i in range(2)]
        return v1.concat([v1.sigmoid(dense(v1, task, 1, f"task_{i}")) for i, task in enumerate(tasks)], -1)

    plans, left, _ = towers(from_graph(tmp_path, build, 8), x_of(8))
    found = layers(plans)
    assert (found.count("mix"), found.count("dense softmax"), found.count("dense relu")) == (2, 2, 3)
    assert not left


def test_experts_that_are_outputs_stay_stacked(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        experts = [v1.nn.relu(dense(v1, x, WIDTH, f"expert_{i}")) for i in range(3)]
        stacked = v1.stack(experts, 1)
        gate = v1.nn.softmax(dense(v1, x, 3, "gate"))
        mixed = v1.reduce_sum(stacked * v1.expand_dims(gate, -1), 1)
        return dense(v1, mixed, 2, "task") + v1.reduce_max(stacked)

    plans, left, _ = towers(from_graph(tmp_path, build, 8), x_of(8))
    assert "mix" in layers(plans)
    assert {"Pack", "Max"} <= left
