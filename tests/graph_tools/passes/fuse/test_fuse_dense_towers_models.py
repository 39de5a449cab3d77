# SPDX-License-Identifier: Apache-2.0
"""Towers of models that libraries export."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from graph_tools.readers import read_model
from helpers.graph_tools.pass_checks import floats
from helpers.graph_tools.stock_answers import requests_for
from helpers.graph_tools.tower_checks import towers

# In a process of its own, since Keras 2 and 3 do not share one.
KERAS = """
import os, sys
out, version = sys.argv[1:]
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TF_USE_LEGACY_KERAS"] = "1" if version == "2" else "0"
import numpy as np, tensorflow as tf
if version == "2":
    import tf_keras as keras
else:
    import keras
layers = keras.layers
x, seq = keras.Input([13], name="x"), keras.Input([None, 6], name="seq")
one = layers.PReLU()(layers.BatchNormalization()(layers.Dense(32)(x)))
one = layers.LayerNormalization()(layers.Add()([one, layers.Dense(32, activation="gelu")(one)]))
one = layers.LeakyReLU()(layers.Dropout(0.3)(layers.Dense(16, activation="swish")(one)))
two = layers.LayerNormalization()(layers.Dense(8, activation="relu")(seq))
two = layers.GlobalAveragePooling1D()(layers.Dense(8, activation="elu")(two))
both = layers.Dense(12, activation="softplus")(layers.Concatenate()([one, two]))
both = layers.Multiply()([both, layers.Dense(12, activation="sigmoid")(both)])
y, z = layers.Dense(1, activation="sigmoid")(both), layers.Dense(5, activation="softmax")(both)
model = keras.Model([x, seq], {"y": y, "z": z})
random = np.random.default_rng(0)
for one in model.weights:
    value = np.asarray(one)
    if value.dtype.kind == "f":
        one.assign(value + random.uniform(0.0, 0.3, value.shape).astype(value.dtype))
if version == "2":
    tf.saved_model.save(model, out)
else:
    model.export(out, verbose=False)
"""


@pytest.mark.parametrize("version", [pytest.param("2", marks=pytest.mark.slow), "3"])
def test_keras_layers_become_towers(tmp_path: Path, version: str) -> None:
    out = tmp_path / "source"
    subprocess.run([sys.executable, "-c", KERAS, str(out), version], check=True, timeout=300)
    feeds = [{"x": floats(rows, 13), "seq": floats(rows, length, 6)} for rows, length in ((1, 1), (4, 7))]
    plans, left, result = towers(out, feeds)
    assert not result.refused
    assert left == {"Mean"}
    kinds = {one["activation"]["kind"] for plan in plans for one in plan["layers"] if "activation" in one}
    assert kinds >= {"prelu", "gelu", "swish", "leaky_relu", "relu", "elu", "softplus", "sigmoid", "softmax"}
    normed = [one for plan in plans for one in plan["layers"] if one["op"] == "layer_norm"]
    assert len(normed) == 2 * len(read_model(out).signatures)


def test_deepctr_models_become_towers(deepctr_model: Path, tmp_path: Path) -> None:
    feeds = requests_for(deepctr_model)["serving_default"]
    plans, left, result = towers(deepctr_model, feeds, out=tmp_path / "towers")
    assert {"MatMul", "Relu", "BiasAdd", "Sigmoid", "Prod"} & left == set()
    kinds = [one for plan in plans for one in plan["layers"] if one.get("activation") == {"kind": "relu"}]
    assert len(kinds) >= 2
    # Crosses and attention multiply two tensors of the request.
    assert all("are not constant" in why for _, why in result.refused)
