# SPDX-License-Identifier: Apache-2.0
"""Clipping of a table's gradient, as Keras clips that of a dense Embedding."""

from __future__ import annotations

import tensorflow as tf

from elastic_training.optimizers import Optimizer


def clip(gradients: tf.Tensor, firsts: tf.Tensor, optimizer: Optimizer) -> tf.Tensor:
    """Return gradients [n, dim] of keys whose sums over equal keys are clipped.

    Parameters
    ----------
    gradients : Tensor [n, dim] float32
    firsts : Tensor [n] int32
        Position of the first occurrence of the same key.
    optimizer : Optimizer
        Its clipvalue bounds each element of a sum, its clipnorm the norm of all sums together.
    """
    sums = tf.math.unsorted_segment_sum(gradients, firsts, tf.shape(gradients)[0])
    if optimizer.clipvalue is not None:
        # The sums are where keys first occur, and zero elsewhere.
        return tf.clip_by_value(sums, -optimizer.clipvalue, optimizer.clipvalue)
    return tf.clip_by_norm(sums, optimizer.clipnorm)
