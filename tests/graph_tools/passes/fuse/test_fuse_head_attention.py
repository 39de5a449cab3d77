# SPDX-License-Identifier: Apache-2.0
"""Attention of several heads becomes one node, however heads are taken apart and masks are spelled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.passes.fuse.fuse_head_attention import FuseHeadAttention
from helpers.graph_tools.interaction_checks import Fused, floats, fuse, fuse_model, requests

OP = "RecHeadAttention"
FIELDS, DIM, HEADS = 5, 8, 2
FEEDS = requests(x=(FIELDS, DIM))
WEIGHTS = [tf.Variable(floats(DIM, DIM, seed=i, scale=0.4)) for i in range(3)]


def lengths(rows: int) -> np.ndarray:
    """Make lengths [rows, 1], of which one is 0."""
    made = np.random.default_rng(rows).integers(1, FIELDS + 1, (rows, 1)).astype(np.int32)
    made[1:2] = 0
    return made


def run(tmp_path: Path, function: Callable[..., Any], **more: Any) -> Fused:
    return fuse(tmp_path, function, requests(x=(FIELDS, DIM), **more), FuseHeadAttention(), weights=WEIGHTS)


def projected(x: Any) -> tuple[Any, Any, Any]:
    one, two, three = (tf.tensordot(x, weight, axes=(-1, 0)) for weight in WEIGHTS)
    return one, two, three


def autoint(x: Any, heads: int = HEADS) -> Any:
    """Write DeepCTR's InteractingLayer."""
    query, key, value = (tf.stack(tf.split(one, heads, axis=2)) for one in projected(x))
    scores = tf.matmul(query, key, transpose_b=True) / (DIM // heads) ** 0.5
    result = tf.matmul(tf.nn.softmax(scores), value)
    return tf.nn.relu(tf.squeeze(tf.concat(tf.split(result, heads), axis=-1), axis=0))


def bst(x: Any, length: Any, heads: int = HEADS) -> Any:
    """Write DeepCTR's Transformer, masks of queries and keys included."""
    masks = tf.squeeze(tf.sequence_mask(length, FIELDS, dtype=tf.float32), axis=1)
    query, key, value = (tf.concat(tf.split(one, heads, axis=2), axis=0) for one in projected(x))
    scores = tf.matmul(query, key, transpose_b=True) / (DIM // heads) ** 0.5
    key_masks = tf.tile(tf.expand_dims(tf.tile(masks, [heads, 1]), 1), [1, tf.shape(x)[1], 1])
    scores = tf.where(tf.equal(key_masks, 1), scores, tf.ones_like(scores) * (-(2.0**32) + 1))
    scores -= tf.reduce_max(scores, axis=-1, keepdims=True)
    weights = tf.nn.softmax(scores)
    weights *= tf.tile(tf.expand_dims(tf.tile(masks, [heads, 1]), -1), [1, 1, tf.shape(x)[1]])
    result = tf.matmul(weights, value)
    return tf.concat(tf.split(result, heads, axis=0), axis=2) + x


def transposed(x: Any, heads: int = HEADS, turned: bool = False) -> Any:
    """Write what most code of transformers does, with a mask over later positions."""
    query, key, value = (
        tf.transpose(tf.reshape(one, [-1, FIELDS, heads, DIM // heads]), [0, 2, 1, 3]) for one in projected(x)
    )
    key = tf.transpose(key, [0, 1, 3, 2]) if turned else key
    scores = tf.matmul(query, key, transpose_b=not turned) * (heads / DIM) ** 0.5
    scores += tf.constant(np.triu(np.full((FIELDS, FIELDS), -1e9, np.float32), 1))
    result = tf.matmul(tf.nn.softmax(scores), value)
    return tf.reshape(tf.transpose(result, [0, 2, 1, 3]), [-1, FIELDS, DIM])


def keras(x: Any, heads: int = HEADS) -> Any:
    """Write Keras's MultiHeadAttention."""
    query, key, value = (tf.reshape(one, [-1, FIELDS, heads, DIM // heads]) for one in projected(x))
    scores = tf.einsum("aecd,abcd->acbe", key, query * (heads / DIM) ** 0.5)
    return tf.einsum("acbe,aecd->abcd", tf.nn.softmax(scores), value)


def plain(x: Any) -> Any:
    """Write attention of one head."""
    query, key, value = projected(x)
    return tf.matmul(tf.nn.softmax(tf.matmul(query, key, transpose_b=True)), value)


SPELLINGS: dict[str, Callable[..., Any]] = {
    "autoint": autoint,
    "transposed": transposed,
    "keras": keras,
    "plain": plain,
    "keys turned": lambda x: transposed(x, turned=True),
    "four heads": lambda x: autoint(x, 4),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_become_one_node(spelling: str, tmp_path: Path) -> None:
    found = run(tmp_path, SPELLINGS[spelling])
    assert found.ops[OP] == 1
    assert not {"Softmax", "BatchMatMulV2", "Einsum", "Split"} & set(found.ops)
    assert not found.reasons
    heads = {"plain": 1, "four heads": 4}.get(spelling, HEADS)
    assert found.attributes(OP, "heads", "num_biases") == [heads, int("transposed" in spelling or "turned" in spelling)]


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_masks_of_queries_and_keys_become_inputs(tmp_path: Path, heads: int) -> None:
    found = run(tmp_path, lambda x, length: bst(x, length, heads), length=lengths)
    assert found.ops[OP] == 1
    assert found.attributes(OP, "heads", "num_conditions", "num_gates") == [heads, 1, 1]
    assert not {"Softmax", "BatchMatMulV2", "SelectV2", "Max", "Tile"} & set(found.ops)


@pytest.mark.parametrize("length", [FIELDS, None])
def test_keras_layers_become_one_node(tmp_path: Path, length: int | None) -> None:
    """Export SASRec's block: attention that a mask bounds, a residual and its normalization."""
    x = tf.keras.Input((length, DIM), name="x")
    attended = tf.keras.layers.MultiHeadAttention(HEADS, DIM // HEADS)(x, x, use_causal_mask=True)
    model = tf.keras.Model(x, tf.keras.layers.LayerNormalization()(x + attended))
    model.export(str(tmp_path / "source"), verbose=False)
    found = fuse_model(tmp_path / "source", tmp_path / "fused", FEEDS, FuseHeadAttention())
    assert found.ops[OP] == len(found.model.signatures), (found.ops, found.reasons)
    assert "Softmax" not in found.ops


def _look_alike(masked: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        query, key, value = projected(x)
        return tf.matmul(masked(tf.matmul(query, key, transpose_b=True), x), value)

    return function


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "weights times a number for each key": (
        _look_alike(lambda scores, x: tf.nn.softmax(scores) * x[:, None, :, 0]),
        "with one number for each query",
    ),
    "less the mean": (
        _look_alike(lambda scores, x: tf.nn.softmax(scores - tf.reduce_mean(scores, -1, keepdims=True))),
        "expected the largest of each row",
    ),
    "selected by what is no mask": (
        _look_alike(lambda scores, x: tf.nn.softmax(tf.where(scores > 0, scores, -1e9))),
        "not known to be of positions",
    ),
}


@pytest.mark.parametrize("which", REFUSED)
def test_similar_graphs_are_refused_with_a_reason(which: str, tmp_path: Path) -> None:
    function, why = REFUSED[which]
    found = run(tmp_path, function)
    assert OP not in found.ops
    assert len(found.reasons) == 1
    assert why in found.reasons[0]


ALONE: dict[str, Callable[..., Any]] = {
    "no softmax": _look_alike(lambda scores, x: tf.nn.relu(scores)),
    "weights of a network": _look_alike(lambda scores, x: tf.nn.softmax(tf.tanh(scores))),
    "weights of the request": lambda x: tf.matmul(tf.nn.softmax(x[:, :, :FIELDS]), x),
    "over queries": _look_alike(
        lambda scores, x: tf.transpose(tf.nn.softmax(tf.transpose(scores, [0, 2, 1])), [0, 2, 1])
    ),
}


@pytest.mark.parametrize("which", ALONE)
def test_graphs_without_the_pattern_are_unchanged(which: str, tmp_path: Path) -> None:
    found = run(tmp_path, ALONE[which])
    assert OP not in found.ops
    assert not found.reasons
