# SPDX-License-Identifier: Apache-2.0
"""Export one model with recurrent layers of every kind, by Keras 3, or by Keras 2 in a process of its own.

python recurrent_models.py FOLDER LENGTH    # Keras 2
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["export"]


def export(keras: Any, out: Path, length: int | None) -> None:
    """Export x float32 [batch, length, 4] -> an output for each kind of layer, as `serving_default` alone.

    Parameters
    ----------
    keras : module
        `keras`, or `tf_keras` (Keras 2). Layers of the latter take several times as long to export, so of them there is
        one of each kind.
    out : Path
        Folder of the SavedModel.
    length : int or None
        Length of the sequences; None: each request has its own.
    """
    layers = keras.layers
    more = keras.__version__.startswith("3")
    x = keras.Input([length, 4], name="x")
    masked = layers.Masking()(x)
    outputs = {}
    for name, cell, settings in (
        ("gru", layers.GRU, {}),
        ("before", layers.GRU, {"reset_after": False}),
        ("lstm", layers.LSTM, {}),
    ):
        biased = name != "before"
        outputs[f"{name}_mask"] = cell(5, return_sequences=name == "gru", use_bias=biased, **settings)(masked)
        if more and name != "gru":
            outputs[f"{name}_last"] = cell(5, use_bias=biased, **settings)(x)
            outputs[f"{name}_all"] = cell(5, return_sequences=True, use_bias=not biased, **settings)(x)
    outputs["backwards"] = layers.GRU(5, go_backwards=True)(masked)
    outputs["both"] = layers.Bidirectional(layers.GRU(5, return_sequences=True))(x)
    if more:
        outputs["lstm_mask_all"] = layers.LSTM(5, return_sequences=True)(masked)
        # These are also the GRUs of which `x` is not masked.
        outputs["stacked"] = layers.GRU(3)(layers.GRU(5, return_sequences=True, use_bias=False)(x))
    model = keras.Model(x, outputs)
    random = np.random.default_rng(0)
    for one in model.weights:
        value = np.asarray(one)
        if value.dtype.kind == "f":
            one.assign(value + random.uniform(-0.3, 0.3, value.shape).astype(value.dtype))
    # What `model.export` does, without its second signature.
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serving_default", model.__call__, [tf.TensorSpec([None, length, 4], tf.float32, name="x")])
    archive.write_out(str(out))


if __name__ == "__main__":
    import tf_keras

    export(tf_keras, Path(sys.argv[1]), None if sys.argv[2] == "None" else int(sys.argv[2]))
