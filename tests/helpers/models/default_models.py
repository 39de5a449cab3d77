# SPDX-License-Identifier: Apache-2.0
"""Export a SavedModel with default values (`SignatureDef.defaults`) for inputs that a request may omit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

SCALE = 2.5
WORD = b"none"
BONUS = {b"none": 0.0, b"gold": 10.0}


def expected(x: np.ndarray, scale: float = SCALE, word: bytes = WORD) -> np.ndarray:
    """Compute the outputs of `build_defaults`: [batch, 3] float32 to [batch] float32."""
    return (x.sum(axis=1) * np.float32(scale) + np.float32(BONUS[word])).astype(np.float32)


def build_defaults(path: Path, defaults: dict[str, Any] | None = None) -> Path:
    """x float32 [batch, 3], scale float32 [] (default 2.5), word string [1] (default none) -> score [batch].

    Parameters
    ----------
    defaults : dict of str to TensorProto, optional
        Replaces these default values.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf import saved_model_pb2

    module = tf.Module()
    module.weight = tf.Variable(np.ones((3, 1), np.float32), name="weight")
    specs = [
        tf.TensorSpec([None, 3], tf.float32, name="x"),
        tf.TensorSpec([], tf.float32, name="scale"),
        tf.TensorSpec([1], tf.string, name="word"),
    ]

    @tf.function(input_signature=specs)
    def serve(x: Any, scale: Any, word: Any) -> dict[str, Any]:
        bonus = tf.cast(tf.equal(word, "gold"), tf.float32) * 10.0
        return {"score": tf.matmul(x, module.weight)[:, 0] * scale + bonus}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    if defaults is None:
        defaults = {
            "scale": tf.make_tensor_proto(np.float32(SCALE)),
            "word": tf.make_tensor_proto(np.array([WORD], object)),
        }
    file = path / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for key, value in defaults.items():
        saved_model.meta_graphs[0].signature_def["serving_default"].defaults[key].CopyFrom(value)
    file.write_bytes(saved_model.SerializeToString())
    return path
