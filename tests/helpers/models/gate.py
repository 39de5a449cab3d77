# SPDX-License-Identifier: Apache-2.0
"""Export a model whose requests run until the test releases them: they write into a named pipe."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from helpers.models.quiet_tensorflow import tensorflow

_OPEN = b"/dev/null"


def build_gated(path: Path) -> Path:
    """x float32 [batch], gate string [] -> y = x, when the file `gate` has been written."""
    tf = tensorflow()

    module = tf.Module()

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.float32, name="x"), tf.TensorSpec([], tf.string, name="gate")]
    )
    def serve(x: Any, gate: Any) -> dict[str, Any]:
        with tf.control_dependencies([tf.io.write_file(gate, "through")]):
            return {"y": tf.identity(x)}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return path


def build_gated_rows(path: Path) -> Path:
    """Export a model with two signatures over rows.

    serving_default: x float32 [batch, columns] -> y float32 [batch], twice the sum of each row, or an error if one
    begins with a negative number; gate: as `build_gated`.
    """
    tf = tensorflow()

    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32, name="x")])
    def serve(x: Any) -> dict[str, Any]:
        with tf.control_dependencies([tf.debugging.assert_non_negative(x[:, 0])]):
            return {"y": 2.0 * tf.reduce_sum(x, axis=1)}

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.float32, name="x"), tf.TensorSpec([], tf.string, name="gate")]
    )
    def gate(x: Any, gate: Any) -> dict[str, Any]:
        with tf.control_dependencies([tf.io.write_file(gate, "through")]):
            return {"y": tf.identity(x)}

    module.serve, module.gate = serve, gate
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve, "gate": gate})
    return path


def passing(number: float) -> dict[str, Any]:
    """Return the inputs of a request that is not held."""
    return {"x": np.array([number], np.float32), "gate": _OPEN}


class Gate:
    """Hold a closed gate: a request with its `inputs` runs until `open` is called."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "gate"
        os.mkfifo(self._path)
        self._opened = False

    @property
    def inputs(self) -> dict[str, Any]:
        """Return the inputs of the request that is held; there can be only one."""
        return {"x": np.array([0.0], np.float32), "gate": str(self._path).encode()}

    def open(self) -> None:
        """Wait for the request and let it continue."""
        if self._opened:
            return
        self._opened = True
        assert self._path.read_bytes() == b"through"
