# SPDX-License-Identifier: Apache-2.0
"""Which models may run requests together: what their graphs prove of rows, and what trials and checks show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import processor
from graph_tools import fuse
from graph_tools.readers import read_model

Serve = Callable[[Any, Any], Any]

THREADS = {"intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1}


def build(path: Path, serve: Serve, shape: tuple[int | None, ...] = (None, 3), dtype: str = "float32") -> Path:
    import tensorflow as tf

    module = tf.Module()
    module.weights = tf.Variable(np.linspace(-1, 1, 12).reshape(3, 4).astype(np.float32))
    spec = tf.TensorSpec(shape, dtype, name="x")
    module.serve = tf.function(lambda x: {"y": serve(tf, x)}, input_signature=[spec])
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve})
    return path


def rows_of(model: processor.Model) -> tuple[str, str | None]:
    found = model.info["batching_rows"]["serving_default"]
    return found["rows"], found["reason"]


def _gather_rows_by_self(tf: Any, x: Any) -> Any:
    table = tf.constant(np.arange(20, dtype=np.float32).reshape(10, 2))
    return tf.gather(table, tf.cast(x, tf.int64) % 10)


def _attention(tf: Any, x: Any) -> Any:
    heads = tf.reshape(x, [-1, 3, 1]) * tf.constant([[1.0, 2.0]])
    scores = tf.nn.softmax(tf.matmul(heads, heads, transpose_b=True))
    return tf.reshape(tf.matmul(scores, heads), [-1, 6])


def _called(tf: Any, x: Any) -> Any:
    @tf.function
    def inner(value: Any) -> Any:
        return tf.nn.relu(value @ tf.ones([3, 2]))

    return inner(x)


def _tiled(tf: Any, x: Any) -> Any:
    return tf.concat([x, tf.tile(tf.constant([[1.0, 2.0]]), [tf.shape(x)[0], 1])], axis=1)


def _time_major(tf: Any, x: Any) -> Any:
    steps = tf.transpose(tf.reshape(x, [-1, 3, 1]), [1, 0, 2])
    return tf.transpose(tf.cumsum(steps, axis=0), [1, 0, 2])[:, :, 0]


INDEPENDENT: dict[str, Serve] = {
    "dense": lambda tf, x: tf.sigmoid(x @ tf.ones([3, 2]) + tf.constant([1.0, -1.0])),
    "softmax of a row": lambda tf, x: tf.nn.softmax(x),
    "less the mean of a row": lambda tf, x: x - tf.reduce_mean(x, axis=-1, keepdims=True),
    "by the length of a row": lambda tf, x: tf.reduce_sum(x, 1) / tf.cast(tf.shape(x)[1], tf.float32),
    "lookup": _gather_rows_by_self,
    "attention": _attention,
    "function": _called,
    "tiled": _tiled,
    "time major": _time_major,
    "zeros as long": lambda tf, x: x + tf.zeros([tf.shape(x)[0], 1]),
    "one hot": lambda tf, x: tf.reduce_sum(tf.one_hot(tf.cast(x, tf.int32), 5), axis=1),
    "sorted row": lambda tf, x: tf.sort(x, axis=1),
    "einsum": lambda tf, x: tf.einsum("bi,bj->bij", x, x),
    "slice": lambda tf, x: tf.stack(tf.unstack(x, axis=1)[1:], axis=1) * x[:, 0:1],
    "checked": lambda tf, x: tf.debugging.check_numerics(x, "x"),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_independence_is_proved(tmp_path: Path, name: str) -> None:
    with processor.Model(build(tmp_path / "m", INDEPENDENT[name]), THREADS) as model:
        assert rows_of(model) == ("independent", None)


def _in_loop(tf: Any, x: Any) -> Any:
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y - tf.reduce_mean(y, 0)), (0, x))[1]


#: Graphs whose scores depend on other rows, and what the proof finds.
DEPENDENT: dict[str, tuple[Serve, str]] = {
    "less the mean": (lambda tf, x: x - tf.reduce_mean(x, axis=0), "(Mean) reduces over rows"),
    "softmax over rows": (lambda tf, x: tf.nn.softmax(x, axis=0), "(Softmax) goes along the rows"),
    "sorted": (lambda tf, x: tf.sort(x, axis=0), "(TopKV2) goes along the rows"),
    "running sum": (lambda tf, x: tf.cumsum(x), "(Cumsum) goes along the rows"),
    "reversed": (lambda tf, x: tf.reverse(x, [0]), "(ReverseV2) goes along the rows"),
    "first row": (lambda tf, x: x - x[0], "(StridedSlice) takes certain rows for all"),
    "backwards": (lambda tf, x: x[::-1], "(StridedSlice) takes certain rows for all"),
    "by their number": (
        lambda tf, x: x / tf.cast(tf.shape(x)[0], tf.float32),
        "(RealDiv) depends on the number of rows",
    ),
    "products of rows": (lambda tf, x: tf.matmul(x, x, transpose_b=True) @ x, "(MatMul) combines rows with each other"),
    "squares of columns": (lambda tf, x: x @ tf.matmul(x, x, transpose_a=True), "(MatMul) combines rows"),
    "differences": (lambda tf, x: tf.reduce_sum(x[:, 0] - x[:, 1:2], 1), "(Sub) combines rows with each other"),
    "normalized": (
        lambda tf, x: tf.compat.v1.nn.fused_batch_norm(x[:, None, None, :], tf.ones(3), tf.zeros(3))[0],
        "(FusedBatchNormV3) normalizes over the rows",
    ),
    "squeezed": (lambda tf, x: tf.squeeze(x[:, :1]), "(Squeeze) drops every dimension of 1"),
    "no rows": (lambda tf, x: tf.reduce_sum(x), "(Sum) reduces over rows"),
    "constant": (lambda tf, x: tf.constant([1.0, 2.0]), "has no rows"),
    "as columns": (lambda tf, x: tf.transpose(x), "has rows in dimension 1"),
    "several": (lambda tf, x: tf.reshape(x, [-1]), "several places for each row"),
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_dependent_rows_are_found_and_the_node_is_named(tmp_path: Path, name: str) -> None:
    serve, reason = DEPENDENT[name]
    with processor.Model(build(tmp_path / "m", serve), THREADS) as model:
        rows, why = rows_of(model)
        assert rows == "dependent"
        assert why is not None
        assert reason in why
        assert why.startswith("output 'y': ")


#: What no rule is known for, or may be right all the same.
UNPROVED: dict[str, Serve] = {
    "loop": _in_loop,
    "gathered by other rows": lambda tf, x: tf.gather(x, tf.argsort(tf.cast(x[:, 0], tf.int32))),
    "row of other elements": lambda tf, x: tf.reshape(tf.transpose(x), [-1, 3]),
    "repeated": lambda tf, x: tf.tile(x, [2, 1])[: tf.shape(x)[0]],
    "rolled": lambda tf, x: tf.roll(x, 1, axis=0),
}


@pytest.mark.parametrize("name", UNPROVED)
def test_other_graphs_are_not_proved(tmp_path: Path, name: str) -> None:
    with processor.Model(build(tmp_path / "m", UNPROVED[name]), THREADS) as model:
        rows, why = rows_of(model)
        assert rows in {"unproved", "dependent"}
        assert why


@pytest.mark.parametrize("mixed", [False, True])
def test_rows_are_followed_through_fused_ops(tmp_path: Path, mixed: bool) -> None:
    import tensorflow as tf

    table = tf.Variable(np.random.default_rng(1).normal(size=(50, 8)).astype(np.float32))
    layers = [
        tf.Variable(np.random.default_rng(i).normal(size=s).astype(np.float32))
        for i, s in enumerate([(27, 16), (16, 1)])
    ]

    def serve(tf: Any, x: Any) -> Any:
        found = tf.reshape(tf.gather(table, tf.cast(tf.abs(x), tf.int64) % 50), [-1, 24])
        hidden = tf.nn.relu(tf.matmul(tf.concat([found, x], 1), layers[0]))
        score = tf.sigmoid(tf.matmul(hidden, layers[1]))
        return tf.reshape(score - tf.reduce_mean(score, 0) if mixed else score, [-1])

    module = tf.Module()
    module.kept = [table, *layers]
    spec = tf.TensorSpec([None, 3], tf.float32, name="x")
    module.serve = tf.function(lambda x: {"y": serve(tf, x)}, input_signature=[spec])
    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"serving_default": module.serve})
    fuse(tmp_path / "m", tmp_path / "fused")
    graph = read_model(tmp_path / "fused").graph
    assert graph.of("RecDenseTower")
    with processor.Model(tmp_path / "fused", THREADS) as model:
        rows, why = rows_of(model)
        assert rows == ("dependent" if mixed else "independent")
        assert "reduces over rows" in why if mixed and why else why is None
