# SPDX-License-Identifier: Apache-2.0
"""A product with rows is computed after everything that is the same before it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.model import Model
from graph_tools.options import CutOptions
from graph_tools.passes.cut import serving_passes
from graph_tools.readers import read_model
from graph_tools.rewriting.multiply_rows import multiply_rows
from graph_tools.rewriting.protocol import run_passes
from graph_tools.writer import write_saved_model
from helpers.graph_tools.stock_answers import answers

DIM = 4
ROWS = np.random.default_rng(0).normal(size=(50, DIM)).astype(np.float32)
MATRIX = np.random.default_rng(1).normal(size=(DIM, DIM)).astype(np.float32)
KERNEL = np.random.default_rng(2).normal(size=(DIM, 3)).astype(np.float32)
IDS = np.random.default_rng(3).integers(0, 50, (6, 5))


def _scaled(rows: Any, _ids: Any) -> Any:
    return tf.tanh(rows)[:, 0]


def _mean_of_segments(rows: Any, ids: Any) -> Any:
    flat = tf.reshape(rows, [-1, DIM])
    segments = tf.repeat(tf.range(tf.shape(ids)[0]), 5)
    return tf.tanh(tf.math.segment_mean(flat, segments))


def _masked(rows: Any, ids: Any) -> Any:
    kept = tf.where((ids > 9)[..., None], rows, tf.zeros_like(rows))
    return tf.tanh(tf.reduce_sum(kept, 1))


def _twice(rows: Any, _ids: Any) -> Any:
    return tf.tanh(tf.reduce_sum(rows, 1)) + tf.tanh(tf.reduce_mean(rows, 1))


def _last_axis(rows: Any, _ids: Any) -> Any:
    return tf.reduce_sum(rows, -1)


def _fetched(rows: Any, _ids: Any) -> Any:
    return rows


# What is computed of rows, how many products that needs, and the op before each.
CASES: list[tuple[Callable[[Any, Any], Any], int, set[str]]] = [
    (_scaled, 1, {"ResourceGather"}),
    (_mean_of_segments, 1, {"SegmentMean"}),
    (_masked, 1, {"Sum"}),
    (_twice, 2, {"Sum", "Mean"}),
    (_last_axis, 1, {"ResourceGather"}),
    (_fetched, 1, {"ResourceGather"}),
]


def turned(tmp_path: Path, function: Any) -> Model:
    """Export a function of rotated rows and of rows, and return the model of the former after the passes of `cut`."""
    for name, rows in (("turned", ROWS), ("plain", ROWS @ MATRIX)):
        module = tf.Module()
        module.rows = tf.Variable(rows)

        @tf.function(input_signature=[tf.TensorSpec([None, 5], tf.int64, name="ids")])
        def serve(ids: tf.Tensor, module: tf.Module = module) -> dict[str, tf.Tensor]:
            return {"out": function(tf.gather(module.rows, ids), ids)}

        tf.saved_model.save(module, str(tmp_path / name), signatures=serve)
    model = read_model(tmp_path / "turned")
    run_passes(model, serving_passes(CutOptions()))
    return model


def assert_equal(model: Model, tmp_path: Path) -> None:
    """Check that a model of rotated rows gives the answers of the model of rows."""
    write_saved_model(model, tmp_path / "out")
    found, expected = (answers(tmp_path / name, {"ids": IDS})["out"] for name in ("out", "plain"))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("function", "products", "before"), CASES, ids=[case[0].__name__ for case in CASES])
def test_products_follow_sums(tmp_path: Path, function: Any, products: int, before: set[str]) -> None:
    model = turned(tmp_path, function)
    (gather,) = model.graph.of("ResourceGather")
    assert multiply_rows(model, gather.output(), MATRIX) == products
    added = [node for node in model.graph.of("MatMul", "BatchMatMulV2") if "basis" in node.name]
    assert {model.graph.input(node, 0).op for node in added} == before
    assert_equal(model, tmp_path)


def _joined(rows: Any, ids: Any) -> Any:
    """Vectors side by side with others and with themselves, in two layers."""
    pooled, others = tf.reduce_sum(rows, 1), tf.cast(ids, tf.float32)
    first = tf.matmul(tf.concat([others, pooled, others], 1), np.tile(KERNEL[:1], (5 + DIM + 5, 1)) * 0.5)
    return first + tf.matmul(
        tf.concat([pooled, others, pooled], -1), tf.tile(KERNEL.T, [1, 5])[:, : 2 * DIM + 5], transpose_b=True
    )


def _side_by_side(rows: Any, _ids: Any) -> Any:
    return tf.matmul(
        tf.reshape(rows, [-1, 5 * DIM]), np.tile(KERNEL, (5, 1)) * np.arange(1, 5 * DIM + 1, dtype=np.float32)[:, None]
    )


def _layer_and_more(rows: Any, _ids: Any) -> Any:
    pooled = tf.reduce_sum(rows, 1)
    return tf.matmul(pooled, KERNEL) + tf.reduce_max(pooled, 1, keepdims=True)


# What is computed of rows, and how many products are left after the others are folded into weights.
FOLDED: list[tuple[Callable[[Any, Any], Any], int]] = [(_joined, 0), (_side_by_side, 0), (_layer_and_more, 1)]


@pytest.mark.parametrize(("function", "products"), FOLDED, ids=[case[0].__name__ for case in FOLDED])
def test_layers_take_the_product_into_their_weights(tmp_path: Path, function: Any, products: int) -> None:
    model = turned(tmp_path, function)
    count = len(model.graph.of("MatMul"))
    (gather,) = model.graph.of("ResourceGather")
    assert multiply_rows(model, gather.output(), MATRIX) == products
    assert len(model.graph.of("MatMul", "BatchMatMulV2")) == count + products
    assert_equal(model, tmp_path)
