# SPDX-License-Identifier: Apache-2.0
"""Export the model that the tests of the hosts serve."""

from __future__ import annotations

import sys
from pathlib import Path

from helpers.system.programs import run_ok

# Run in a separate process: tests that only use a host need not load TensorFlow.
_EXPORT = """
import sys, tensorflow as tf

DTYPES = ("float32 float64 int32 uint8 int16 int8 string complex64 int64 bool bfloat16 uint16 complex128 half uint32 "
          "uint64").split()

class Model(tf.Module):
    def __init__(self):
        self.w = tf.Variable([1.0, 2.0, 4.0])

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec([None], tf.string, "s")])
    def score(self, x, s):
        return {"y": tf.linalg.matvec(x, self.w), "echo": tf.strings.join([s, "!"])}

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, "size")])
    def slow(self, size):
        m = tf.ones([size, size])
        for _ in range(4):
            m = tf.matmul(m, m) / tf.cast(size, tf.float32)
        return {"mean": tf.reduce_mean(m)}

    @tf.function(input_signature=[{d: tf.TensorSpec([None, 2], getattr(tf, d), d) for d in DTYPES}])
    def types(self, inputs):
        return {d + "_out": tf.identity(t) for d, t in inputs.items()}

model = Model()
tf.saved_model.save(model, sys.argv[1], signatures={
    "serving_default": model.score.get_concrete_function(), "slow": model.slow.get_concrete_function(),
    "types": model.types.get_concrete_function()})
"""


def export_host_model(folder: Path) -> Path:
    """Export the model of the host tests into `folder`.

    Its signatures: `serving_default` (x float32 [n, 3], s string [n]) -> (y = x . [1, 2, 4], echo = s + "!"), `slow`
    (size int32 []), whose time grows with the cube of `size`, and `types`, which returns every dtype unchanged.
    """
    run_ok([sys.executable, "-c", _EXPORT, folder])
    return folder
