# SPDX-License-Identifier: Apache-2.0
"""Export the reference workload W1: Wide & Deep like production exports (string features, tf.feature_column).

    python make_wdl.py OUT_DIR        # needs tensorflow or tensorflow-cpu 2.21

Inputs I1..I13 float32 [batch], C1..C26 string [batch]; output prob float32 [batch, 1]. Weights are random, seed 0.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

v1 = tf.compat.v1
fc = tf.feature_column
BUCKETS = [2500, 2000, 100000, 100000, 1000, 100, 20000, 1000, 10, 20000, 10000, 100000, 10000]
BUCKETS += [100, 10000, 100000, 10, 10000, 10000, 10, 100000, 100, 100, 100000, 1000, 100000]
DIM, HIDDEN = 16, [1024, 512, 256]


def main(out: str) -> None:
    """Export the model.

    Parameters
    ----------
    out : str
        Folder to create; it must not exist.
    """
    with v1.Graph().as_default():
        v1.set_random_seed(0)
        feats = {f"I{i + 1}": v1.placeholder(tf.float32, [None], name=f"I{i + 1}") for i in range(13)}
        feats |= {f"C{i + 1}": v1.placeholder(tf.string, [None], name=f"C{i + 1}") for i in range(26)}
        columns = {k: v1.expand_dims(v, 1) for k, v in feats.items()}
        numeric = [fc.numeric_column(f"I{i + 1}") for i in range(13)]
        categorical = [fc.categorical_column_with_hash_bucket(f"C{i + 1}", BUCKETS[i]) for i in range(26)]
        embedded = [fc.embedding_column(c, DIM, combiner="mean") for c in categorical]
        h = v1.feature_column.input_layer(columns, numeric + embedded)
        for i, width in enumerate(HIDDEN):
            with v1.variable_scope(f"dnn_{i}"):
                kernel = v1.get_variable("kernel", [h.shape[1], width], initializer=v1.glorot_uniform_initializer())
                bias = v1.get_variable("bias", [width], initializer=v1.zeros_initializer())
                h = tf.nn.relu(tf.nn.bias_add(tf.matmul(h, kernel), bias))
        kernel, bias = v1.get_variable("logits_kernel", [HIDDEN[-1], 1]), v1.get_variable("logits_bias", [1])
        wide = v1.feature_column.linear_model(columns, numeric + categorical)
        prob = tf.sigmoid(tf.matmul(h, kernel) + bias + wide, name="prob")
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), v1.tables_initializer()])
            v1.saved_model.simple_save(session, out, inputs=feats, outputs={"prob": prob})


if __name__ == "__main__":
    main(sys.argv[1])
