# SPDX-License-Identifier: Apache-2.0
"""Reference workload W2: the same tower fed with integer ids, a small clean TF 2 graph.

    python make_idwdl.py OUT_DIR      # needs tensorflow or tensorflow-cpu 2.21

Inputs dense float32 [batch, 13], C1..C26 int64 [batch]; output prob float32 [batch, 1]. Weights are random, seed 0.
"""

import os
import sys
from itertools import pairwise

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

ROWS, DIM, WIDTHS = 100_000, 16, [13 + 26 * 16, 1024, 512, 256, 1]
SPECS = [tf.TensorSpec([None, 13], tf.float32, name="dense")]
SPECS += [tf.TensorSpec([None], tf.int64, name=f"C{i + 1}") for i in range(26)]


class WideAndDeep(tf.Module):  # type: ignore[misc]
    """Define 26 embedding tables, concatenated with the numeric features, and a tower of four layers."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.tables = [tf.Variable(rng.normal(0, 0.05, (ROWS, DIM)).astype("f4"), name=f"emb_{i}") for i in range(26)]
        self.kernels = [
            tf.Variable(rng.normal(0, (2 / a) ** 0.5, (a, b)).astype("f4"), name=f"kernel_{i}")
            for i, (a, b) in enumerate(pairwise(WIDTHS))
        ]
        self.biases = [tf.Variable(np.zeros(b, "f4"), name=f"bias_{i}") for i, b in enumerate(WIDTHS[1:])]

    @tf.function(input_signature=SPECS)  # type: ignore[untyped-decorator]
    def serve(self, dense: tf.Tensor, *ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Score a batch.

        Parameters
        ----------
        dense : tf.Tensor [batch, 13] float32
            Numeric features.
        ids : 26 of tf.Tensor [batch] int64
            Row of each table, in [0, 100000).

        Returns
        -------
        outputs : dict
            "prob", tf.Tensor [batch, 1] float32, in (0, 1).
        """
        h = tf.concat([dense] + [tf.gather(t, i) for t, i in zip(self.tables, ids, strict=True)], 1)
        for i, (kernel, bias) in enumerate(zip(self.kernels, self.biases, strict=True)):
            h = tf.nn.bias_add(tf.matmul(h, kernel), bias)
            h = tf.nn.relu(h) if i < 3 else tf.sigmoid(h)
        return {"prob": h}


if __name__ == "__main__":
    model = WideAndDeep()
    tf.saved_model.save(model, sys.argv[1], signatures={"serving_default": model.serve})
