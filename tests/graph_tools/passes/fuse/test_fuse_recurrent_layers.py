# SPDX-License-Identifier: Apache-2.0
"""Loops of recurrent layers become one node each, as both versions of Keras export them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.graph import attribute
from graph_tools.passes.fuse.fuse_recurrent_layers import FuseRecurrentLayers
from helpers.graph_tools.interaction_checks import Fused, floats, fuse, fuse_model
from helpers.graph_tools.live_checks import check_follows
from helpers.models import recurrent_models

OP = "RecRecurrentLayer"
LENGTH, DIM, UNITS = 6, 4, 5

# The layers of each version in `recurrent_models`.
LAYERS = {"2": 6, "3": 13}


def sequences(rows: int, length: int = LENGTH) -> np.ndarray:
    """Make sequences of which positions at the start, between and at the end are masked, and all of one row."""
    made = floats(rows, length, DIM, seed=rows)
    made[np.random.default_rng(rows).random((rows, length)) < 0.3] = 0
    made[2:3] = 0
    return made


@pytest.mark.slow
@pytest.mark.parametrize(("version", "length"), [("2", LENGTH), ("3", None)])
def test_keras_layers_become_one_node(tmp_path: Path, version: str, length: int | None) -> None:
    source = tmp_path / "source"
    if version == "2":
        # In a process of its own, since Keras 2 and 3 do not share one.
        surroundings = os.environ | {"TF_USE_LEGACY_KERAS": "1", "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, recurrent_models.__file__, str(source), str(length)]
        subprocess.run(command, check=True, timeout=300, env=surroundings)
    else:
        recurrent_models.export(tf.keras, source, length)
    feeds = [{"x": sequences(rows)} for rows in (1, 2, 29)] + ([] if length else [{"x": sequences(3, 1)}])
    found = fuse_model(source, tmp_path / "fused", feeds, FuseRecurrentLayers())
    assert not found.reasons
    assert found.ops[OP] == LAYERS[version] * len(found.model.signatures)
    assert not {"While", "StatelessWhile", "TensorListFromTensor"} & set(found.ops)
    nodes = found.model.graph.of(OP)
    kinds = {attribute(node, "cell").decode() for node in nodes}
    assert kinds == {"gru", "gru_reset_before", "lstm"}
    assert sum(attribute(one, "backwards") for one in nodes) == 2 * len(found.model.signatures)


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf])
def test_nan_and_infinities_give_the_same_states(tmp_path: Path, strange: float) -> None:
    x = tf.keras.Input((LENGTH, DIM), name="x")
    gru, lstm = (one(UNITS, return_sequences=True)(x) for one in (tf.keras.layers.GRU, tf.keras.layers.LSTM))
    tf.keras.Model(x, {"gru": gru, "lstm": lstm}).export(str(tmp_path / "source"), verbose=False)
    feed = sequences(4)
    feed[1, 2, 3] = strange
    found = fuse_model(tmp_path / "source", tmp_path / "fused", [{"x": feed}], FuseRecurrentLayers())
    assert found.ops[OP] == 2 * len(found.model.signatures)


def test_last_state_and_all_states_come_from_one_node(tmp_path: Path) -> None:
    x = tf.keras.Input((LENGTH, DIM), name="x")
    states, last = tf.keras.layers.GRU(UNITS, return_sequences=True, return_state=True)(x)
    model = tf.keras.Model(x, {"states": states, "last": last})
    model.export(str(tmp_path / "source"), verbose=False)
    found = fuse_model(tmp_path / "source", tmp_path / "fused", [{"x": sequences(3)}], FuseRecurrentLayers())
    assert found.ops[OP] == len(found.model.signatures), found.reasons
    assert "While" not in found.ops


def test_weights_follow_variables(tmp_path: Path) -> None:
    x = tf.keras.Input((LENGTH, DIM), name="x")
    outputs = {"gru": tf.keras.layers.GRU(UNITS)(x), "lstm": tf.keras.layers.LSTM(UNITS)(x)}
    tf.keras.Model(x, outputs).export(str(tmp_path / "source"), verbose=False)
    model, formulas = check_follows(tmp_path / "source", [{"x": sequences(3)}], signature="serving_default")
    assert len(model.graph.of(OP)) == 2 * len(model.signatures)
    assert model.live is not None
    assert len(model.live.sources_of(formulas.values())) == 6


def run(tmp_path: Path, *layers: Any, **more: Callable[[int], np.ndarray]) -> Fused:
    (layer,) = layers
    feeds = [{"x": sequences(rows)} | {name: one(rows) for name, one in more.items()} for rows in (1, 3)]
    return fuse(tmp_path, layer, feeds, FuseRecurrentLayers(), layers=list(layer.held))


class Calls:
    """A function that calls a layer, and what it holds."""

    def __init__(self, layer: Any, call: Callable[..., Any] | None = None) -> None:
        self.layer, self.call = layer, call or (lambda one, *inputs: one(*inputs))
        self.call(layer, tf.zeros((1, LENGTH, DIM)), *([tf.zeros((1, UNITS))] if call is not None else []))
        self.held = [variable.value for variable in layer.variables]

    def __call__(self, x: Any, *others: Any) -> Any:
        return self.call(self.layer, x, *others)


def test_first_state_other_than_zero_is_refused(tmp_path: Path) -> None:
    layer = Calls(tf.keras.layers.GRU(UNITS), lambda one, x, state: one(x, initial_state=state))
    found = run(tmp_path, layer, state=lambda rows: floats(rows, UNITS))
    assert OP not in found.ops
    assert len(found.reasons) == 1
    assert "first state" in found.reasons[0]
    assert "is not zero" in found.reasons[0]


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "relu": (lambda: tf.keras.layers.GRU(UNITS, activation="relu"), "its activation is 'Relu', expected tanh"),
    "hard": (lambda: tf.keras.layers.GRU(UNITS, recurrent_activation="relu6"), "'Relu6', expected a sigmoid"),
    "lstm": (lambda: tf.keras.layers.LSTM(UNITS, recurrent_activation="relu"), "are not sigmoids"),
    "simple": (lambda: tf.keras.layers.SimpleRNN(UNITS), "its state is changed in another way"),
    "zeros": (
        lambda: tf.keras.layers.RNN(tf.keras.layers.GRUCell(UNITS), return_sequences=True, zero_output_for_mask=True),
        "do not repeat the previous result",
    ),
}


@pytest.mark.parametrize("which", REFUSED)
def test_similar_layers_are_refused_with_a_reason(which: str, tmp_path: Path) -> None:
    make, why = REFUSED[which]
    x = tf.keras.Input((LENGTH, DIM), name="x")
    y = make()(tf.keras.layers.Masking()(x) if which == "zeros" else x)
    tf.keras.Model(x, y).export(str(tmp_path / "source"), verbose=False)
    found = fuse_model(tmp_path / "source", tmp_path / "fused", [{"x": sequences(3)}], FuseRecurrentLayers())
    assert OP not in found.ops
    assert found.reasons
    assert all(why in reason for reason in found.reasons), found.reasons


def test_other_loops_are_refused_with_a_reason(tmp_path: Path) -> None:
    def function(x: Any) -> Any:
        (found,) = tf.while_loop(lambda y: tf.reduce_sum(y) < 10.0, lambda y: (y * 2 + 1,), [tf.abs(x[:, 0, :1])])
        return found

    found = fuse(tmp_path, function, [{"x": sequences(3)}], FuseRecurrentLayers())
    assert len(found.reasons) == 1
    assert "but not a recurrent layer: it reads no sequence" in found.reasons[0]
