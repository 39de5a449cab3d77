# SPDX-License-Identifier: Apache-2.0
"""Reference workload for sparse lookups: bags of words through safe_embedding_lookup_sparse, and a small tower.

    python make_bags.py OUT_DIR       # needs tensorflow or tensorflow-cpu 2.21

Input words string [batch, 20, n], padded with '': twenty bags. A word is hashed into its bag's table of 20,000 rows of
16; a third each of the bags is combined by mean, sum and sqrtn. Output prob float32 [batch, 1]. Weights are random,
seed 0.
"""

import os
import sys
from itertools import pairwise

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

BAGS, ROWS, DIM, COMBINERS = 20, 20_000, 16, ["mean", "sum", "sqrtn"]
WIDTHS = [BAGS * DIM, 64, 32, 1]
SPECS = [tf.TensorSpec([None, BAGS, None], tf.string, name="words")]


class Bags(tf.Module):  # type: ignore[misc]
    """Define twenty bags of words and a tower of three layers."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.tables = [tf.Variable(rng.normal(0, 0.5, (ROWS, DIM)).astype("f4"), name=f"emb_{i}") for i in range(BAGS)]
        self.kernels = [
            tf.Variable(rng.normal(0, (2 / a) ** 0.5, (a, b)).astype("f4"), name=f"kernel_{i}")
            for i, (a, b) in enumerate(pairwise(WIDTHS))
        ]
        self.biases = [
            tf.Variable(rng.normal(0, 0.1, b).astype("f4"), name=f"bias_{i}") for i, b in enumerate(WIDTHS[1:])
        ]

    @tf.function(input_signature=SPECS)  # type: ignore[untyped-decorator]
    def serve(self, words: tf.Tensor) -> dict[str, tf.Tensor]:
        """Score a batch.

        Parameters
        ----------
        words : tf.Tensor [batch, 20, n] string
            At most n words in each bag, '' if it has fewer.

        Returns
        -------
        outputs : dict
            "prob", tf.Tensor [batch, 1] float32, in (0, 1).
        """
        rows = []
        for i, (table, bag) in enumerate(zip(self.tables, tf.unstack(words, axis=1), strict=True)):
            sparse = tf.sparse.from_dense(bag)
            ids = tf.SparseTensor(
                sparse.indices, tf.strings.to_hash_bucket_fast(sparse.values, ROWS), sparse.dense_shape
            )
            rows.append(tf.nn.safe_embedding_lookup_sparse(table, ids, combiner=COMBINERS[i % 3]))
        h = tf.concat(rows, 1)
        for i, (kernel, bias) in enumerate(zip(self.kernels, self.biases, strict=True)):
            h = tf.nn.bias_add(tf.matmul(h, kernel), bias)
            h = tf.nn.relu(h) if i < 2 else tf.sigmoid(h)
        return {"prob": h}


if __name__ == "__main__":
    model = Bags()
    tf.saved_model.save(model, sys.argv[1], signatures={"serving_default": model.serve})
