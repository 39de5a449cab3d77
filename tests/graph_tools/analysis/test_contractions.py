# SPDX-License-Identifier: Apache-2.0
"""The marked relus are those that TensorFlow computes together with a product, as its answers to NaN show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.analysis.contractions import MARK, drop_marks, is_marked, mark_contractions
from graph_tools.readers import read_model
from graph_tools.verification.settings import settings_here

K, UNITS = 8, 5


def _patterns() -> dict[str, Callable[[Any, Any, Any], Any]]:
    import tensorflow as tf

    bias, product, relu = tf.nn.bias_add, tf.matmul, tf.nn.relu
    raw = tf.raw_ops
    return {
        "bias": lambda x, w, b: relu(bias(product(x, w), b)),
        "relu6": lambda x, w, b: tf.nn.relu6(bias(product(x, w), b)),
        "sum": lambda x, w, b: relu(product(x, w) + b),
        "sum_turned": lambda x, w, b: relu(b + product(x, w)),
        "old_sum": lambda x, w, b: relu(raw.Add(x=product(x, w), y=b)),
        "identities": lambda x, w, b: relu(tf.stop_gradient(bias(tf.identity(product(x, w)), b))),
        "turned_weights": lambda x, w, b: relu(bias(product(x, tf.constant(w.T), transpose_b=True), b)),
        "no_bias": lambda x, w, _: relu(product(x, w)),
        "not_a_vector": lambda x, w, b: relu(product(x, w) + tf.reduce_sum(x, 1, keepdims=True) * b[0]),
        "normalized": lambda x, w, b: relu(bias(product(x, w), b) * 1.5 + 0.25),
        "two_biases": lambda x, w, b: relu(bias(bias(product(x, w), b), b)),
        "sum_used_twice": lambda x, w, b: (lambda total: relu(total) + total)(bias(product(x, w), b)),
        "tensordot": lambda x, w, b: relu(bias(tf.tensordot(x, w, [[1], [0]]), b)),
        "einsum": lambda x, w, b: relu(bias(tf.einsum("ab,bc->ac", x, w), b)),
        "maximum": lambda x, w, b: tf.maximum(bias(product(x, w), b), 0.0),
        "float64": lambda x, w, b: relu(bias(product(tf.cast(x, tf.float64), w.astype("f8")), b.astype("f8"))),
    }


@pytest.mark.parametrize("name", _patterns())
def test_a_relu_is_marked_where_tensorflow_drops_nan(name: str, tmp_path: Path) -> None:
    import tensorflow as tf

    if not settings_here().onednn:
        pytest.skip("TensorFlow runs without oneDNN here, and keeps NaN everywhere")
    v1 = tf.compat.v1
    rng = np.random.default_rng(0)
    with v1.Graph().as_default() as graph, v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, K], name="x")
        w, b = rng.normal(size=(K, UNITS)).astype(np.float32), rng.normal(size=UNITS).astype(np.float32)
        y = tf.cast(_patterns()[name](x, w, b), tf.float32)
        tf.identity(y * 2.0, name="y")
        found = session.run("y:0", {x: np.full((3, K), np.nan, np.float32)})
        (tmp_path / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    model = read_model(tmp_path / "graph.pb")
    mark_contractions(model)
    relus = model.graph.of("Relu", "Relu6")
    assert any(map(is_marked, relus)) == (not np.isnan(found).any())
    drop_marks(model.graph)
    assert not any(MARK in node.attrs for node in relus)
