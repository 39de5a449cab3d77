# SPDX-License-Identifier: Apache-2.0
"""Pooling of rows in TensorFlow, with gradients of weights; the lookup op pools where there are no weights."""

from __future__ import annotations

import tensorflow as tf

COMBINERS = ("sum", "mean", "sqrtn")


def pool(rows: tf.Tensor, row_splits: tf.Tensor, weights: tf.Tensor, combiner: str) -> tf.Tensor:
    """Return the pooled rows.

    Parameters
    ----------
    rows : Tensor [n, dim] float32
    row_splits : Tensor [m + 1] int64
    weights : Tensor [n] float32
    combiner : {"sum", "mean", "sqrtn"}

    Returns
    -------
    Tensor [m, dim] float32
        Zeros where the weights of a row add up to zero, as tf.nn.embedding_lookup_sparse has it.

    Notes
    -----
    sum: Σ w·x; mean: Σ w·x / Σ w; sqrtn: Σ w·x / √(Σ w²).
    """
    count = tf.shape(row_splits, tf.int64)[0] - 1
    segments = tf.RaggedTensor.from_row_splits(weights, row_splits, validate=False).value_rowids()
    total = tf.math.unsorted_segment_sum(rows * weights[:, tf.newaxis], segments, count)
    if combiner == "sum":
        return total
    squared = combiner == "sqrtn"
    norm = tf.math.unsorted_segment_sum(weights * weights if squared else weights, segments, count)
    return tf.math.divide_no_nan(total, (tf.sqrt(norm) if squared else norm)[:, tf.newaxis])
