# SPDX-License-Identifier: Apache-2.0
"""The layers of a cross network become one node, whether kernels are vectors, matrices or of low rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.passes.fuse.fuse_cross_networks import FuseCrossNetworks
from helpers.graph_tools.interaction_checks import Fused, floats, fuse, requests

OP = "RecCrossNetwork"
WIDTH = 12
FEEDS = requests(x=(WIDTH,))


def variables(layers: int, *sizes: int, bias: tuple[int, ...] = (WIDTH,)) -> tuple[list[Any], list[Any]]:
    kernels = [tf.Variable(floats(*sizes, seed=i, scale=0.3)) for i in range(layers)]
    return kernels, [tf.Variable(floats(*bias, seed=10 + i)) for i in range(layers)]


def run(
    tmp_path: Path, function: Callable[[Any, list[Any], list[Any]], Any], held: tuple[list[Any], list[Any]]
) -> Fused:
    return fuse(tmp_path, lambda x: function(x, *held), FEEDS, FuseCrossNetworks(), kernels=held[0], biases=held[1])


def deepctr_vector(x: Any, kernels: list[Any], biases: list[Any]) -> Any:
    x0 = tf.expand_dims(x, 2)
    y = x0
    for kernel, bias in zip(kernels, biases, strict=True):
        y = tf.matmul(x0, tf.tensordot(y, kernel, axes=(1, 0))) + bias + y
    return tf.squeeze(y, 2)


def deepctr_matrix(x: Any, kernels: list[Any], biases: list[Any]) -> Any:
    x0 = tf.expand_dims(x, 2)
    y = x0
    for kernel, bias in zip(kernels, biases, strict=True):
        y = x0 * (tf.einsum("ij,bjk->bik", kernel, y) + bias) + y
    return tf.squeeze(y, 2)


def plain_vector(x: Any, kernels: list[Any], biases: list[Any]) -> Any:
    y = x
    for kernel, bias in zip(kernels, biases, strict=True):
        y = bias + (y + tf.matmul(y, kernel) * x)
    return y


def summed_vector(x: Any, kernels: list[Any], biases: list[Any]) -> Any:
    y = x
    for kernel, bias in zip(kernels, biases, strict=True):
        y = tf.add_n([x * tf.reduce_sum(y * kernel, 1, keepdims=True), y]) + bias
    return y


def tfrs(x: Any, kernels: list[Any], biases: list[Any]) -> Any:
    """Write tfrs.layers.dcn.Cross."""
    y = x
    for kernel, bias in zip(kernels, biases, strict=True):
        y = x * tf.nn.bias_add(tf.matmul(y, kernel), bias) + y
    return y


def tfrs_low_rank(x: Any, kernels: list[Any], biases: list[Any]) -> Any:
    """Write tfrs.layers.dcn.Cross with a projection."""
    y = x
    for i, bias in enumerate(biases):
        y = x * tf.nn.bias_add(tf.matmul(tf.matmul(y, kernels[2 * i]), kernels[2 * i + 1]), bias) + y
    return y


@pytest.mark.parametrize("layers", [1, 3])
def test_layers_with_vectors_become_one_node(layers: int, tmp_path: Path) -> None:
    spellings: list[tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = [
        (deepctr_vector, (WIDTH, 1), (WIDTH, 1)),
        (plain_vector, (WIDTH, 1), (WIDTH,)),
        (summed_vector, (WIDTH,), (1, WIDTH)),
    ]
    for i, (function, sizes, bias) in enumerate(spellings):
        (tmp_path / str(i)).mkdir()
        found = run(tmp_path / str(i), function, variables(layers, *sizes, bias=bias))
        assert found.ops == {OP: 1}
        assert found.attributes(OP, "version", "num_kernels", "num_biases") == [b"vector", layers, layers]
        assert not found.reasons


@pytest.mark.parametrize("layers", [1, 3])
def test_layers_with_matrices_become_one_node(layers: int, tmp_path: Path) -> None:
    for i, (function, bias, transposed) in enumerate(((deepctr_matrix, (WIDTH, 1), True), (tfrs, (WIDTH,), False))):
        (tmp_path / str(i)).mkdir()
        found = run(tmp_path / str(i), function, variables(layers, WIDTH, WIDTH, bias=bias))
        assert found.ops == {OP: 1}
        assert found.attributes(OP, "version", "num_kernels", "transposed") == [b"matrix", layers, transposed]
        assert not found.reasons


def test_layers_with_two_thin_matrices_become_one_node(tmp_path: Path) -> None:
    kernels = [tf.Variable(floats(*size, seed=i)) for i, size in enumerate([(WIDTH, 3), (3, WIDTH)] * 2)]
    biases = [tf.Variable(floats(WIDTH, seed=i)) for i in range(2)]
    found = run(tmp_path, tfrs_low_rank, (kernels, biases))
    assert found.ops == {OP: 1}
    assert found.attributes(OP, "version", "num_kernels", "num_biases") == [b"low_rank", 4, 2]


def test_layers_without_bias_become_one_node(tmp_path: Path) -> None:
    held = variables(2, WIDTH, WIDTH)

    def without(x: Any, kernels: list[Any], _: list[Any]) -> Any:
        y = x
        for kernel in kernels:
            y = x * tf.matmul(y, kernel) + y
        return y

    found = run(tmp_path, without, held)
    assert found.ops == {OP: 1}
    assert found.attributes(OP, "num_biases") == [0]


def test_missing_biases_of_some_layers_become_zeros(tmp_path: Path) -> None:
    def first_only(x: Any, kernels: list[Any], biases: list[Any]) -> Any:
        y = x * tf.matmul(x, kernels[0]) + biases[0] + x
        return x * tf.matmul(y, kernels[1]) + y

    found = run(tmp_path, first_only, variables(2, WIDTH, 1))
    assert found.ops == {OP: 1}
    assert found.attributes(OP, "num_biases") == [2]


def test_layer_whose_result_is_used_elsewhere_ends_a_network(tmp_path: Path) -> None:
    def both(x: Any, kernels: list[Any], biases: list[Any]) -> Any:
        first = x * tf.matmul(x, kernels[0]) + biases[0] + x
        return tf.concat([first, x * tf.matmul(first, kernels[1]) + biases[1] + first], 1)

    found = run(tmp_path, both, variables(2, WIDTH, 1))
    assert found.ops[OP] == 1
    assert len(found.reasons) == 1
    assert "expected a layer before it" in found.reasons[0]


def test_network_that_begins_at_the_end_of_another_is_fused(tmp_path: Path) -> None:
    """Each layer crosses its own input: as many networks as layers, of which one takes what the other gives."""

    def chained(x: Any, kernels: list[Any], biases: list[Any]) -> Any:
        y = x
        for kernel, bias in zip(kernels, biases, strict=True):
            y = y * (tf.matmul(y, kernel) + bias) + y
        return y

    found = run(tmp_path, chained, variables(3, WIDTH, WIDTH))
    assert found.ops == {OP: 3}
    assert not found.reasons


def test_networks_of_reshaped_columns_follow_one_another(tmp_path: Path) -> None:
    def chained(x: Any, kernels: list[Any], biases: list[Any]) -> Any:
        return deepctr_vector(deepctr_vector(x, kernels[:2], biases[:2]), kernels[2:], biases[2:])

    found = run(tmp_path, chained, variables(4, WIDTH, 1, bias=(WIDTH, 1)))
    assert found.ops[OP] == 2, found.ops


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "bias outside": (lambda x, w, b: x * tf.matmul(x, w[0]) + b[0] + x, "after the product with x0"),
    "two biases": (lambda x, w, b: x * (tf.matmul(x, w[0]) + b[0]) + b[1] + x, "after the product with x0"),
}


@pytest.mark.parametrize("which", REFUSED)
def test_similar_graphs_are_refused_with_a_reason(which: str, tmp_path: Path) -> None:
    function, why = REFUSED[which]
    found = run(tmp_path, function, variables(2, WIDTH, WIDTH))
    assert OP not in found.ops
    assert len(found.reasons) == 1
    assert why in found.reasons[0]


ALONE: dict[str, Callable[..., Any]] = {
    "no residual": lambda x, w, b: x * (tf.matmul(x, w[0]) + b[0]),
    "scaled residual": lambda x, w, b: x * (tf.matmul(x, w[0]) + b[0]) + 2.0 * x,
    "activation": lambda x, w, b: x * tf.nn.relu(tf.matmul(x, w[0]) + b[0]) + x,
    "weights of the request": lambda x, w, b: x * tf.reduce_sum(x * x, 1, keepdims=True) + x,
    "a column of the batch": lambda x, w, b: x * tf.reduce_sum(tf.matmul(x, w[0]), 0, keepdims=True) + x,
}


@pytest.mark.parametrize("which", ALONE)
def test_graphs_without_the_pattern_are_unchanged(which: str, tmp_path: Path) -> None:
    found = run(tmp_path, ALONE[which], variables(2, WIDTH, WIDTH))
    assert OP not in found.ops
    assert not found.reasons


def test_other_dtypes_are_not_fused(tmp_path: Path) -> None:
    kernel = tf.Variable(np.random.default_rng(0).normal(size=(WIDTH, 1)))

    def wide(x: Any) -> Any:
        y = tf.cast(x, tf.float64)
        return y * tf.matmul(y, kernel) + y

    found = fuse(tmp_path, wide, FEEDS, FuseCrossNetworks(), kernel=kernel)
    assert OP not in found.ops
    assert "is not float32" in found.reasons[0]
