# SPDX-License-Identifier: Apache-2.0
"""PNN's outer products become one node, with numbers, vectors and matrices as kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.passes.fuse.fuse_products import FuseProducts
from helpers.graph_tools.interaction_checks import floats, fuse, requests

OP = "RecProduct"
COUNT, DIM = 4, 6
PAIRS = COUNT * (COUNT - 1) // 2
FEEDS = requests(x=(COUNT, DIM))


def lists(x: Any) -> tuple[Any, Any]:
    fields = tf.split(x, COUNT, 1)
    rows, columns = np.triu_indices(COUNT, 1)
    return tf.concat([fields[i] for i in rows], 1), tf.concat([fields[i] for i in columns], 1)


def bilinear(x: Any, kernel: Any) -> Any:
    p, q = lists(x)
    inner = tf.reduce_sum(tf.multiply(tf.expand_dims(p, 1), kernel), -1)
    return tf.reduce_sum(tf.multiply(tf.transpose(inner, [0, 2, 1]), q), -1)


def weighted(x: Any, kernel: Any) -> Any:
    p, q = lists(x)
    return tf.reduce_sum(p * q * tf.expand_dims(kernel, 0), -1)


@pytest.mark.parametrize(
    ("kind", "function", "shape"),
    [("matrix", bilinear, (DIM, PAIRS, DIM)), ("vector", weighted, (PAIRS, DIM)), ("scalar", weighted, (PAIRS, 1))],
)
def test_spellings_become_one_node(
    kind: str, function: Callable[..., Any], shape: tuple[int, ...], tmp_path: Path
) -> None:
    kernel = tf.Variable(floats(*shape))
    found = fuse(tmp_path, lambda x: function(x, kernel), FEEDS, FuseProducts(), kernel=kernel)
    assert found.ops == {OP: 1, "Split": 1, "ConcatV2": 1}
    pairs = [i * COUNT + j for i in range(COUNT) for j in range(i + 1, COUNT)]
    assert found.attributes(OP, "kind", "pairs", "num_fields", "dim") == [kind.encode(), pairs, COUNT, DIM]
    assert not found.reasons


def test_single_pair_becomes_one_node(tmp_path: Path) -> None:
    kernel = tf.Variable(floats(1, DIM))

    def one(x: Any) -> Any:
        a, b = tf.split(x[:, :2], 2, 1)
        return tf.reduce_sum(a * b * kernel, -1)

    found = fuse(tmp_path, one, FEEDS, FuseProducts(), kernel=kernel)
    assert found.ops[OP] == 1
    assert found.attributes(OP, "pairs") == [[1]]


def test_weights_of_other_shapes_are_refused_with_a_reason(tmp_path: Path) -> None:
    kernel = tf.Variable(floats(1, DIM))
    found = fuse(tmp_path, lambda x: weighted(x, kernel), FEEDS, FuseProducts(), kernel=kernel)
    assert OP not in found.ops
    assert len(found.reasons) == 1
    assert "expected one for each pair" in found.reasons[0]


ALONE: dict[str, Callable[[Any], Any]] = {
    "weights of the request": lambda x: tf.reduce_sum(lists(x)[0] * lists(x)[1] * x[:, :1], -1),
    "no vectors of features": lambda x: tf.reduce_sum(x * tf.abs(x) * np.ones((COUNT, DIM), np.float32), -1),
    "another axis": lambda x: tf.reduce_sum(lists(x)[0] * lists(x)[1] * np.ones((PAIRS, DIM), np.float32), 1),
}


@pytest.mark.parametrize("which", ALONE)
def test_graphs_without_the_pattern_are_unchanged(which: str, tmp_path: Path) -> None:
    found = fuse(tmp_path, ALONE[which], FEEDS, FuseProducts())
    assert OP not in found.ops
    assert not found.reasons
