# SPDX-License-Identifier: Apache-2.0
"""Lookups in TensorFlow's own ops, for models that are exported: no op of this package is in their graph.

The forms are those that graph-tools fuses.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from elastic_training.layers.feature import Feature
from elastic_training.layers.keys import flatten, is_key
from elastic_training.layers.pooling import pool
from elastic_training.table import Table

Find = Callable[[Table, tf.Tensor], tf.Tensor]
"""Returns the rows [..., dim] of keys [...] in a table."""

_tracing = threading.local()
_SEGMENTS = {
    "sum": tf.raw_ops.SparseSegmentSumWithNumSegments,
    "mean": tf.raw_ops.SparseSegmentMeanWithNumSegments,
    "sqrtn": tf.raw_ops.SparseSegmentSqrtNWithNumSegments,
}


@contextmanager
def native_lookups(find: Find) -> Iterator[None]:
    """Make all layers that this thread calls look rows up with `find`, without training."""
    before = current()
    _tracing.find = find
    try:
        yield
    finally:
        _tracing.find = before


def current() -> Find | None:
    """Return the `find` of the innermost `native_lookups`, None outside."""
    found: Find | None = getattr(_tracing, "find", None)
    return found


def look_up(owner: str, find: Find, table: Table, feature: Feature, keys: Any, weights: Any, mask: Any) -> Any:
    """Return the output of a feature.

    Parameters
    ----------
    owner : str
        What messages call the feature.
    keys : Tensor, RaggedTensor or SparseTensor of int64 or string
    weights, mask : of the structure of `keys`, or None
    """
    if feature.combiner is None:
        flat = flatten(owner, keys, weights, pooled=False)
        if not isinstance(keys, tf.Tensor):
            return flat.restore(_rows(find, table, flat.values, feature.mask_zero))
        return _rows(find, table, keys, feature.mask_zero)
    if isinstance(keys, tf.Tensor):
        return _pooled_dense(find, table, feature, keys, weights, mask)
    if weights is None and mask is None and keys.shape.rank == 2:
        sparse = keys.to_sparse() if isinstance(keys, tf.RaggedTensor) else keys
        return _pooled_sparse(find, table, feature, sparse)
    flat = flatten(owner, keys, weights, mask, pooled=True)
    assert flat.row_splits is not None
    present = tf.ones(tf.shape(flat.values)) if flat.weights is None else flat.weights
    if feature.mask_zero:
        present = tf.where(is_key(flat.values), present, 0.0)
    return flat.restore(pool(find(table, flat.values), flat.row_splits, present, feature.combiner))


def _rows(find: Find, table: Table, keys: tf.Tensor, mask_zero: bool) -> tf.Tensor:
    rows = find(table, keys)
    return tf.where(is_key(keys)[..., tf.newaxis], rows, tf.zeros_like(rows)) if mask_zero else rows


def _pooled_dense(find: Find, table: Table, feature: Feature, keys: tf.Tensor, weights: Any, mask: Any) -> tf.Tensor:
    rows = find(table, keys)
    present = None if weights is None else tf.cast(tf.convert_to_tensor(weights), tf.float32)
    for test in (mask, is_key(keys) if feature.mask_zero else None):
        if test is not None:
            ones = tf.cast(test, tf.float32)
            present = ones if present is None else present * ones
    if present is None and feature.combiner == "mean" and keys.shape[-1]:
        return tf.reduce_mean(rows, -2)
    total = tf.reduce_sum(rows if present is None else rows * present[..., tf.newaxis], -2)
    if feature.combiner == "sum":
        return total
    if present is None:
        number = tf.cast(tf.shape(keys)[-1], tf.float32)
        return tf.math.divide_no_nan(total, number if feature.combiner == "mean" else tf.sqrt(number))
    if feature.combiner == "mean":
        return tf.math.divide_no_nan(total, tf.reduce_sum(present, -1, keepdims=True))
    return tf.math.divide_no_nan(total, tf.sqrt(tf.reduce_sum(tf.square(present), -1, keepdims=True)))


def _pooled_sparse(find: Find, table: Table, feature: Feature, keys: tf.SparseTensor) -> tf.Tensor:
    assert feature.combiner is not None
    values, rows = keys.values, keys.indices[:, 0]
    if feature.mask_zero:
        kept = tf.where(is_key(values))
        values, rows = tf.gather_nd(values, kept), tf.gather_nd(rows, kept)
    return _SEGMENTS[feature.combiner](
        data=find(table, values),
        indices=tf.range(tf.size(values)),
        segment_ids=rows,
        num_segments=keys.dense_shape[0],
    )
