# SPDX-License-Identifier: Apache-2.0
"""Dot products of pairs of vectors become one node, however the pairs are picked."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.passes.fuse.fuse_dot_interactions import FuseDotInteractions
from helpers.graph_tools.interaction_checks import fuse, requests

OP = "RecDotInteraction"
COUNT = 5
FEEDS = requests(x=(COUNT, 6))
LOWER = np.tril(np.ones((COUNT, COUNT), bool), -1)
DIAGONAL = np.tril(np.ones((COUNT, COUNT), bool))


def tfrs(self_interaction: bool, skip_gather: bool) -> Callable[[Any], Any]:
    """Write tfrs.layers.feature_interaction.DotInteraction."""

    def function(x: Any) -> Any:
        products = tf.matmul(x, x, transpose_b=True)
        ones = tf.ones_like(products)
        if self_interaction:
            lower = tf.linalg.band_part(ones, -1, 0)
            upper = ones - lower
        else:
            upper = tf.linalg.band_part(ones, 0, -1)
            lower = ones - upper
        size = COUNT * (COUNT + 1) // 2 if self_interaction else COUNT * (COUNT - 1) // 2
        if skip_gather:
            picked = tf.where(condition=tf.cast(upper, tf.bool), x=tf.zeros_like(products), y=products)
            size = COUNT * COUNT
        else:
            picked = tf.boolean_mask(products, lower)
        return tf.reshape(picked, (tf.shape(x)[0], size))

    return function


def pairs_of(mask: np.ndarray) -> list[int]:
    return np.flatnonzero(mask).tolist()


def products(x: Any) -> Any:
    return tf.matmul(x, x, transpose_b=True)


SPELLINGS: dict[str, tuple[Callable[[Any], Any], list[int]]] = {
    "tfrs": (tfrs(False, False), pairs_of(LOWER)),
    "tfrs with itself": (tfrs(True, False), pairs_of(DIAGONAL)),
    "tfrs with zeros": (tfrs(False, True), np.where(LOWER.ravel(), np.arange(COUNT * COUNT), -1).tolist()),
    "gather_nd": (
        lambda x: tf.transpose(tf.gather_nd(tf.transpose(products(x), [1, 2, 0]), np.argwhere(LOWER))),
        pairs_of(LOWER),
    ),
    "constant mask": (
        lambda x: tf.ensure_shape(tf.boolean_mask(products(x), LOWER, axis=1), [None, 10]),
        pairs_of(LOWER),
    ),
    "indices": (
        lambda x: tf.gather(tf.reshape(products(x), [-1, COUNT * COUNT]), [7, 3, 24, 7], axis=1),
        [7, 3, 24, 7],
    ),
    "transposed": (
        lambda x: tf.gather(tf.reshape(tf.matmul(x, tf.transpose(x, [0, 2, 1])), [-1, 25]), [1, 2], axis=1),
        [1, 2],
    ),
    "times a mask": (
        lambda x: tf.reshape(products(x) * LOWER.astype(np.float32), [-1, 25]),
        np.where(LOWER.ravel(), np.arange(COUNT * COUNT), -1).tolist(),
    ),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_become_one_node(spelling: str, tmp_path: Path) -> None:
    function, pairs = SPELLINGS[spelling]
    found = fuse(tmp_path, function, FEEDS, FuseDotInteractions())
    assert found.ops[OP] == 1
    assert set(found.ops) <= {OP, "EnsureShape"}
    assert found.attributes(OP, "pairs", "num_fields") == [pairs, COUNT]
    assert not found.reasons


def test_products_of_two_lists_become_one_node(tmp_path: Path) -> None:
    """Write the inner products of PNN, which list the vectors of each pair."""

    def inner(x: Any) -> Any:
        fields = tf.split(x * 2.0, COUNT, 1)
        rows, columns = np.triu_indices(COUNT, 1)
        p = tf.concat([fields[i] for i in rows], axis=1)
        q = tf.concat([fields[i] for i in columns], axis=1)
        return tf.concat([tf.reshape(x, [-1, 30]), tf.reshape(tf.reduce_sum(p * q, -1, keepdims=True), [-1, 10])], 1)

    found = fuse(tmp_path, inner, FEEDS, FuseDotInteractions())
    # The vectors are joined once, instead of once for each pair.
    assert found.ops == {OP: 1, "Mul": 1, "Split": 1, "ConcatV2": 2, "Reshape": 1}
    assert found.attributes(OP, "pairs") == [[i * COUNT + j for i in range(COUNT) for j in range(i + 1, COUNT)]]


def test_existing_join_of_vectors_is_reused(tmp_path: Path) -> None:
    def inner(x: Any) -> dict[str, Any]:
        a, b, c = tf.split(x[:, :3], 3, 1)
        p, q = tf.concat([a, a, b], 1), tf.concat([b, c, c], 1)
        return {"deep": tf.reshape(tf.concat([a, b, c], 2), [-1, 18]), "y": tf.reduce_sum(p * q, -1)}

    found = fuse(tmp_path, inner, FEEDS, FuseDotInteractions())
    assert found.ops[OP] == 1
    assert found.ops["ConcatV2"] == 1


def one_by_one(dot: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """Write the pairs of FwFM as DeepCTR does."""

    def function(x: Any) -> Any:
        vectors = [tf.squeeze(x[0:, i : i + 1, 0:], axis=1) for i in range(COUNT)]
        pairs = itertools.combinations(range(COUNT), 2)
        return tf.add_n([tf.scalar_mul(0.1 + i + j, dot(vectors[i], vectors[j])) for i, j in pairs])

    return function


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "gather_nd in each row": (
        lambda x: tf.gather_nd(
            products(x), tf.tile(tf.constant(np.argwhere(LOWER))[None], [tf.shape(x)[0], 1, 1]), batch_dims=1
        ),
        "by constant places of a transposed matrix",
    ),
    "gather_nd that stays turned": (
        lambda x: tf.gather_nd(tf.transpose(products(x), [1, 2, 0]), np.argwhere(LOWER)),
        "not transposed back to rows",
    ),
    "values decide": (
        lambda x: tf.reshape(products(x) * tf.cast(products(x) > 0, tf.float32), [-1, 25]),
        "does not follow from constants",
    ),
    "other numbers": (lambda x: tf.reshape(products(x) * 0.5, [-1, 25]), "other numbers than 0 and 1"),
    "pairs one by one, by matmul": (
        one_by_one(lambda a, b: tf.squeeze(tf.matmul(a[:, None], b[:, :, None]), 2)),
        "are multiplied and weighted one by one",
    ),
    "pairs one by one, by a sum": (
        one_by_one(lambda a, b: tf.reduce_sum(a * b, axis=1, keepdims=True)),
        "are multiplied and weighted one by one",
    ),
    "rows are picked": (lambda x: tf.gather(products(x), [0], axis=0), "picks rows"),
}


@pytest.mark.parametrize("which", REFUSED)
def test_similar_graphs_are_refused_with_a_reason(which: str, tmp_path: Path) -> None:
    function, why = REFUSED[which]
    found = fuse(tmp_path, function, FEEDS, FuseDotInteractions())
    assert OP not in found.ops
    assert any(why in reason for reason in found.reasons)


def test_graphs_without_the_pattern_are_unchanged(tmp_path: Path) -> None:
    def attention(x: Any) -> dict[str, Any]:
        other = tf.matmul(x, x * 2.0, transpose_b=True)
        return {"a": tf.gather(tf.reshape(other, [-1, 25]), [1], axis=1), "b": tf.matmul(products(x), x)}

    found = fuse(tmp_path, attention, FEEDS, FuseDotInteractions())
    assert OP not in found.ops
    assert not found.reasons
