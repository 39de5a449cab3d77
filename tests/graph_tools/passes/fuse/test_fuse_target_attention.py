# SPDX-License-Identifier: Apache-2.0
"""DIN's attention over a history becomes one node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.passes.fuse.fuse_target_attention import FuseTargetAttention
from helpers.graph_tools.interaction_checks import Fused, floats, fuse, requests
from helpers.graph_tools.live_checks import check_follows

OP = "RecTargetAttention"
LENGTH, DIM = 7, 4
PADDING = -(2.0**32) + 1  # rounded: -(2.0**32)


def ids(rows: int) -> np.ndarray:
    """Make ids with padding, the second history being all of it."""
    made = np.random.default_rng(rows).integers(0, 3, (rows, LENGTH)).astype(np.int32)
    made[1:2] = 0
    return made


def lengths(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).integers(0, LENGTH + 1, (rows, 1)).astype(np.int32)


class Network:
    """The layers of an attention unit, as DeepCTR writes them: `tensordot`, bias, activation."""

    def __init__(self, parts: int, units: tuple[int, ...] = (8, 3), activation: str = "sigmoid") -> None:
        self.held: dict[str, Any] = {}
        self.activation = activation
        inputs = parts * DIM
        for i, size in enumerate((*units, 1)):
            self.held[f"w{i}"] = tf.Variable(floats(inputs, size, seed=i, scale=0.5))
            self.held[f"b{i}"] = tf.Variable(floats(size, seed=i))
            self.held[f"a{i}"] = tf.Variable(floats(size, seed=10 + i))
            self.held[f"m{i}"] = tf.Variable(floats(size, seed=20 + i))
            inputs = size
        self.layers = len(units) + 1

    def activate(self, x: Any, i: int) -> Any:
        if self.activation == "dice":
            normed = (x - self.held[f"m{i}"]) / tf.sqrt(2.0 + 1e-9)
            p = tf.sigmoid(normed)
            return self.held[f"a{i}"] * (1.0 - p) * x + p * x
        if self.activation == "prelu":
            return tf.maximum(0.0, x) + self.held[f"a{i}"] * tf.minimum(0.0, x)
        return {"sigmoid": tf.sigmoid, "relu": tf.nn.relu, "cosine": tf.cos}[self.activation](x)

    def __call__(self, x: Any) -> Any:
        for i in range(self.layers):
            x = tf.nn.bias_add(tf.tensordot(x, self.held[f"w{i}"], axes=(-1, 0)), self.held[f"b{i}"])
            if i + 1 < self.layers:
                x = self.activate(x, i)
        return x


def repeated(query: Any) -> Any:
    """Write K.repeat_elements."""
    return tf.concat([query] * LENGTH, axis=1)


def deepctr(network: Network, softmax: bool, by_length: bool = False) -> Callable[[Any, Any, Any], Any]:
    """Write AttentionSequencePoolingLayer."""

    def function(query: Any, keys: Any, history: Any) -> Any:
        queries = repeated(query)
        scores = network(tf.concat([queries, keys, queries - keys, queries * keys], axis=-1))
        scores = tf.transpose(scores, (0, 2, 1))
        masks = tf.sequence_mask(history, LENGTH) if by_length else tf.expand_dims(tf.not_equal(history, 0), axis=1)
        paddings = tf.ones_like(scores) * PADDING if softmax else tf.zeros_like(scores)
        scores = tf.where(masks, scores, paddings)
        return tf.matmul(tf.nn.softmax(scores) if softmax else scores, keys)

    return function


FEEDS: dict[str, Any] = {"query": (1, DIM), "keys": (LENGTH, DIM)}


def run(tmp_path: Path, function: Callable[..., Any], network: Network, history: Any = ids) -> Fused:
    return fuse(tmp_path, function, requests(**FEEDS, history=history), FuseTargetAttention(), **network.held)


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("activation", ["sigmoid", "dice", "prelu", "relu"])
def test_deepctr_attention_becomes_one_node(activation: str, softmax: bool, tmp_path: Path) -> None:
    network = Network(4, activation=activation)
    found = run(tmp_path, deepctr(network, softmax), network)
    assert found.ops == {OP: 1, "NotEqual": 1}
    assert found.attributes(OP, "parts") == [[b"query", b"key", b"query-key", b"product"]]
    assert found.attributes(OP, "activations") == [[activation.encode(), activation.encode(), b""]]
    assert found.attributes(OP, "softmax", "padding", "keep_dims") == [
        softmax,
        np.float32(PADDING) if softmax else 0,
        True,
    ]
    assert not found.reasons


@pytest.mark.parametrize("activation", ["dice", "prelu"])
def test_weights_follow_variables(activation: str, tmp_path: Path) -> None:
    network = Network(4, activation=activation)
    run(tmp_path, deepctr(network, True), network)
    model, formulas = check_follows(tmp_path / "source", requests(**FEEDS, history=ids))
    assert len(model.graph.of(OP)) == 1
    assert len(formulas) == (10 if activation == "dice" else 8)


def test_mask_from_lengths_becomes_an_input(tmp_path: Path) -> None:
    network = Network(4)
    found = run(tmp_path, deepctr(network, True, by_length=True), network, lengths)
    assert found.ops == {OP: 1}
    assert found.attributes(OP, "Tmask") == [tf.int32]


def test_two_masks_become_two_inputs(tmp_path: Path) -> None:
    """Write what Keras makes of the masks of joined histories."""
    network = Network(4)

    def function(query: Any, keys: Any, history: Any) -> Any:
        scores = tf.transpose(network(tf.concat([repeated(query), keys, query - keys, query * keys], -1)), (0, 2, 1))
        both = [tf.expand_dims(tf.not_equal(history, one), -1) for one in (0, 2)]
        mask = tf.expand_dims(tf.reduce_all(tf.concat(both, -1), axis=-1), 1)
        return tf.matmul(tf.nn.softmax(tf.where(mask, scores, PADDING)), keys)

    found = run(tmp_path, function, network)
    assert found.ops == {OP: 1, "NotEqual": 2}
    assert found.attributes(OP, "num_masks") == [2]


def hand_written(network: Network) -> Callable[[Any, Any, Any], Any]:
    """Tile the query, take parts in another order, scale scores, and squeeze what comes out."""

    def function(query: Any, keys: Any, history: Any) -> Any:
        x = tf.concat([tf.tile(query, [1, LENGTH, 1]), keys * query, keys - query], -1)
        scores = network(x)[:, :, 0]
        scores = tf.where(history > 0, scores, -1e9) / np.sqrt(DIM).astype(np.float32)
        return tf.squeeze(tf.matmul(tf.nn.softmax(scores)[:, None, :], keys), 1)

    return function


def test_hand_written_attention_becomes_one_node(tmp_path: Path) -> None:
    network = Network(3, units=(6,), activation="relu")
    found = run(tmp_path, hand_written(network), network)
    assert found.ops == {OP: 1, "Greater": 1}
    assert found.attributes(OP, "parts", "scale") == [[b"query", b"product", b"key-query"], pytest.approx(0.5)]


def test_attention_without_a_mask_becomes_one_node(tmp_path: Path) -> None:
    network = Network(2, units=(), activation="relu")

    def function(query: Any, keys: Any, history: Any) -> Any:
        scores = network(tf.concat([repeated(query), keys], -1))
        return {"y": tf.matmul(tf.nn.softmax(tf.transpose(scores, (0, 2, 1))), keys), "history": history + 1}

    found = run(tmp_path, function, network)
    assert found.ops[OP] == 1
    assert found.attributes(OP, "num_masks") == [0]


REFUSED: dict[str, tuple[str, Callable[[Network], Callable[..., Any]], str]] = {
    "another activation": ("cosine", lambda n: deepctr(n, True), "is not made from a query and the keys"),
    "two queries": (
        "relu",
        lambda n: (
            lambda q, k, h: tf.matmul(
                tf.transpose(n(tf.concat([repeated(q), k, repeated(2.0 * q), k * q], -1)), (0, 2, 1)), k + 0.0 * q
            )
        ),
        "",
    ),
    "two different queries": (
        "relu",
        lambda n: (
            lambda q, k, h: tf.matmul(
                tf.transpose(n(tf.concat([repeated(q), k, repeated(2.0 * q), k * q], -1)), (0, 2, 1)), k
            )
        ),
        "joins parts of 2 queries, expected one",
    ),
    "something else": (
        "relu",
        lambda n: (
            lambda q, k, h: tf.matmul(tf.transpose(n(tf.concat([repeated(q), k, tf.exp(k), k * q], -1)), (0, 2, 1)), k)
        ),
        "is not made from a query and the keys",
    ),
}


@pytest.mark.parametrize("which", REFUSED)
def test_similar_graphs_are_refused_with_a_reason(which: str, tmp_path: Path) -> None:
    activation, make, why = REFUSED[which]
    network = Network(4, activation=activation)

    def function(query: Any, keys: Any, history: Any) -> dict[str, Any]:
        return {"y": make(network)(query, keys, history), "history": history + 1}

    found = run(tmp_path, function, network)
    assert OP not in found.ops
    assert any(why in reason for reason in found.reasons) or which in ("another activation",)


def test_attention_without_a_network_is_not_fused(tmp_path: Path) -> None:
    network = Network(4)

    def function(query: Any, keys: Any, history: Any) -> dict[str, Any]:
        scores = tf.nn.softmax(tf.matmul(query, keys, transpose_b=True))
        return {"y": tf.matmul(scores, keys), "history": history + 1}

    found = run(tmp_path, function, network)
    assert OP not in found.ops
    assert not found.reasons
