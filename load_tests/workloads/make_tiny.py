# SPDX-License-Identifier: Apache-2.0
"""Export a small model with the parts of a click model: numbers, a hashed string feature with embedding, two layers.

    python make_tiny.py OUT_DIR       # needs tensorflow or tensorflow-cpu 2.21

Inputs dense float32 [batch, 4], C1 string [batch]; output prob float32 [batch, 1]. Weights are random, seed 0.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

BUCKETS, DIM, HIDDEN = 100, 4, 16
SPECS = [tf.TensorSpec([None, 4], tf.float32, name="dense"), tf.TensorSpec([None], tf.string, name="C1")]


class Tiny(tf.Module):  # type: ignore[misc]
    """Define one embedding table and two layers."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.table = tf.Variable(rng.normal(0, 0.5, (BUCKETS, DIM)).astype("f4"), name="table")
        self.hidden = tf.Variable(rng.normal(0, 0.5, (4 + DIM, HIDDEN)).astype("f4"), name="hidden")
        self.output = tf.Variable(rng.normal(0, 0.5, (HIDDEN, 1)).astype("f4"), name="output")

    @tf.function(input_signature=SPECS)  # type: ignore[untyped-decorator]
    def serve(self, dense: tf.Tensor, c1: tf.Tensor) -> dict[str, tf.Tensor]:
        """Score a batch.

        Parameters
        ----------
        dense : tf.Tensor [batch, 4] float32
            Numeric features.
        c1 : tf.Tensor [batch] string
            A category.

        Returns
        -------
        outputs : dict
            "prob", tf.Tensor [batch, 1] float32, in (0, 1).
        """
        rows = tf.gather(self.table, tf.strings.to_hash_bucket_fast(c1, BUCKETS))
        h = tf.nn.relu(tf.matmul(tf.concat([dense, rows], 1), self.hidden))
        return {"prob": tf.sigmoid(tf.matmul(h, self.output))}


if __name__ == "__main__":
    model = Tiny()
    tf.saved_model.save(model, sys.argv[1], signatures={"serving_default": model.serve})
