# SPDX-License-Identifier: Apache-2.0
"""The products of a compressed interaction network become one node each, and its convolutions layers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.passes.fuse.fuse_compressed_interactions import FuseCompressedInteractions
from graph_tools.passes.fuse.fuse_dense_towers import FuseDenseTowers
from helpers.graph_tools.interaction_checks import Fused, floats, fuse, requests

OP = "RecFieldOuter"
FIELDS, DIM, UNITS = 5, 4, 6
FEEDS = requests(x=(FIELDS, DIM))
FILTERS = [tf.Variable(floats(1, FIELDS * one, UNITS, seed=one, scale=0.3)) for one in (FIELDS, UNITS // 2)]
BIASES = [tf.Variable(floats(UNITS, seed=i)) for i in range(2)]


def products(x0: Any, x: Any) -> Any:
    parts = [tf.split(one, DIM * [1], 2) for one in (x0, x)]
    joined = tf.reshape(tf.matmul(*parts, transpose_b=True), [DIM, -1, FIELDS * int(x.shape[1])])
    return tf.transpose(joined, [1, 0, 2])


def cin(x: Any) -> Any:
    """Write DeepCTR's CIN with `split_half`."""
    hidden, results = x, []
    for i, (filters, bias) in enumerate(zip(FILTERS, BIASES, strict=True)):
        made = tf.nn.bias_add(tf.nn.conv1d(products(x, hidden), filters, 1, "VALID"), bias)
        made = tf.transpose(tf.nn.relu(made), [0, 2, 1])
        hidden, direct = tf.split(made, 2 * [UNITS // 2], 1) if not i else (made, made)
        results.append(direct)
    return tf.reduce_sum(tf.concat(results, 1), -1)


def run(tmp_path: Path, function: Callable[..., Any], *passes: Any) -> Fused:
    return fuse(tmp_path, function, FEEDS, FuseCompressedInteractions(), *passes, filters=FILTERS, biases=BIASES)


def test_products_of_every_layer_are_fused(tmp_path: Path) -> None:
    found = run(tmp_path, cin)
    assert found.ops[OP] == 2
    assert not {"BatchMatMulV2", "Pack"} & set(found.ops)
    assert not found.reasons


def test_convolutions_of_width_one_become_dense_layers(tmp_path: Path) -> None:
    found = run(tmp_path, cin, FuseDenseTowers())
    assert (found.ops[OP], found.ops["RecDenseTower"]) == (2, 2)
    assert not {"Conv2D", "BiasAdd", "Relu"} & set(found.ops)


ALONE: dict[str, Callable[..., Any]] = {
    "another order": lambda x: tf.transpose(
        tf.reshape(tf.matmul(*[tf.split(x, DIM * [1], 2)] * 2, transpose_b=True), [DIM, -1, FIELDS**2]), [2, 1, 0]
    ),
    "sums of products": lambda x: tf.matmul(x, x, transpose_b=True),
    "parts of two elements": lambda x: tf.transpose(
        tf.reshape(tf.matmul(*[tf.split(x, [2, 2], 2)] * 2, transpose_b=True), [2, -1, FIELDS**2]), [1, 0, 2]
    ),
}


@pytest.mark.parametrize("which", ALONE)
def test_graphs_without_the_pattern_are_unchanged(which: str, tmp_path: Path) -> None:
    found = run(tmp_path, ALONE[which])
    assert OP not in found.ops
    assert not found.reasons


def test_wider_convolutions_are_not_fused(tmp_path: Path) -> None:
    filters = tf.Variable(floats(3, FIELDS**2, UNITS))
    made = fuse(
        tmp_path,
        lambda x: tf.nn.conv1d(products(x, x), filters, 1, "SAME"),
        FEEDS,
        FuseCompressedInteractions(),
        FuseDenseTowers(),
        filters=filters,
    )
    assert made.ops[OP] == 1
    assert made.ops["Conv2D"] == 1


def test_other_dtypes_are_not_fused(tmp_path: Path) -> None:
    found = run(tmp_path, lambda x: products(tf.cast(x, tf.float64), tf.cast(x, tf.float64)))
    assert OP not in found.ops
    assert "is not float32" in found.reasons[0]


def test_scores_are_equal_bit_for_bit(tmp_path: Path) -> None:
    values = np.array([[[np.nan, 1, 0, -0.0], [np.inf, -1, 3, 1e-40]] + [[1, 2, 3, 4]] * 3], np.float32)
    found = fuse(tmp_path, lambda x: products(x, x), [{"x": values}], FuseCompressedInteractions())
    assert found.ops == {OP: 1}
