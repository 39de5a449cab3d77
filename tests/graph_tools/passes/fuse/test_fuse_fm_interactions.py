# SPDX-License-Identifier: Apache-2.0
"""The pairwise term of factorization machines becomes one node, in any spelling."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from graph_tools.passes.fuse.fuse_fm_interactions import FuseFmInteractions
from helpers.graph_tools.interaction_checks import fuse, requests

OP = "RecFmInteraction"
FEEDS = requests(x=(5, 8))


def deepctr(x: Any) -> Any:
    square_of_sum = tf.square(tf.reduce_sum(x, axis=1, keepdims=True))
    sum_of_square = tf.reduce_sum(x * x, axis=1, keepdims=True)
    return 0.5 * tf.reduce_sum(square_of_sum - sum_of_square, axis=2, keepdims=False)


def bi_interaction(x: Any) -> Any:
    square_of_sum = tf.square(tf.reduce_sum(x, axis=1, keepdims=True))
    return 0.5 * (square_of_sum - tf.reduce_sum(x * x, axis=1, keepdims=True))


def powers(x: Any) -> Any:
    return tf.reduce_sum(0.5 * (tf.pow(tf.reduce_sum(x, 1), 2) - tf.reduce_sum(tf.pow(x, 2), 1)), 1, keepdims=True)


def halves(x: Any) -> Any:
    total = tf.reduce_sum(x, 1)
    return tf.reduce_sum(total * total - tf.reduce_sum(tf.square(x), -2), -1) / 2.0


SPELLINGS: dict[str, tuple[Callable[[Any], Any], set[str]]] = {
    "deepctr": (deepctr, {OP}),
    "bi_interaction": (bi_interaction, {OP}),
    "powers": (powers, {OP}),
    # A score of rank 1.
    "halves": (halves, {OP, "Reshape"}),
    "columns": (lambda x: deepctr(tf.reshape(tf.reshape(x, [-1, 40]) * 1.5, [-1, 5, 8])), {OP, "Mul", "Reshape"}),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_become_one_node(spelling: str, tmp_path: Path) -> None:
    function, ops = SPELLINGS[spelling]
    found = fuse(tmp_path, function, FEEDS, FuseFmInteractions())
    assert set(found.ops) == ops
    assert found.ops[OP] == 1
    assert found.attributes(OP, "output") == [b"vector" if spelling == "bi_interaction" else b"sum"]
    assert not found.reasons


def test_columns_are_read_without_a_reshape(tmp_path: Path) -> None:
    function, _ = SPELLINGS["columns"]
    found = fuse(tmp_path, function, FEEDS, FuseFmInteractions())
    assert found.attributes(OP, "dim") == [8]
    assert found.model.graph.input(found.node(OP), 0).op == "Mul"


def test_intermediate_results_with_other_users_stay(tmp_path: Path) -> None:
    def both(x: Any) -> dict[str, Any]:
        total = tf.reduce_sum(x, 1)
        return {"total": total, "y": tf.reduce_sum(total * total - tf.reduce_sum(x * x, 1), 1, keepdims=True) * 0.5}

    found = fuse(tmp_path, both, FEEDS, FuseFmInteractions())
    assert found.ops == {OP: 1, "Sum": 1}


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "not halved": (lambda x: tf.reduce_sum(tf.square(tf.reduce_sum(x, 1)) - tf.reduce_sum(x * x, 1), 1), "not halved"),
    "of rows": (
        lambda x: 0.5 * (tf.square(tf.reduce_sum(x[:, 0], 1)) - tf.reduce_sum(x[:, 0] * x[:, 0], 1)),
        "2 dimensions, expected rows, fields and elements",
    ),
}


@pytest.mark.parametrize("which", REFUSED)
def test_similar_graphs_are_refused_with_a_reason(which: str, tmp_path: Path) -> None:
    function, why = REFUSED[which]
    found = fuse(tmp_path, function, FEEDS, FuseFmInteractions())
    assert OP not in found.ops
    assert len(found.reasons) == 1
    assert why in found.reasons[0]


ALONE: dict[str, Callable[[Any], Any]] = {
    "other axes": lambda x: 0.5 * (tf.square(tf.reduce_sum(x, 2)) - tf.reduce_sum(x * x, 2)),
    "mixed axes": lambda x: 0.5 * (tf.square(tf.reduce_sum(x[:, :5, :5], 1)) - tf.reduce_sum(x[:, :5, :5] ** 2, 2)),
    "cubes": lambda x: 0.5 * (tf.reduce_sum(x, 1) ** 3 - tf.reduce_sum(x * x, 1)),
    "other tensors": lambda x: 0.5 * (tf.square(tf.reduce_sum(x, 1)) - tf.reduce_sum(x * tf.abs(x), 1)),
    "other order": lambda x: 0.5 * (tf.reduce_sum(x * x, 1) - tf.square(tf.reduce_sum(x, 1))),
}


@pytest.mark.parametrize("which", ALONE)
def test_graphs_without_the_pattern_are_unchanged(which: str, tmp_path: Path) -> None:
    found = fuse(tmp_path, ALONE[which], FEEDS, FuseFmInteractions())
    assert OP not in found.ops
    assert not found.reasons
