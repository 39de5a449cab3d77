# SPDX-License-Identifier: Apache-2.0
"""Keys as models have them (dense, ragged, sparse; integers or strings) become the flat lists that ops take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class FlatKeys:
    """The keys of one feature in one call.

    Attributes
    ----------
    values : Tensor [n] int64 or string
    row_splits : Tensor [rows + 1] int64, or None
        Keys of row i are values[row_splits[i]:row_splits[i + 1]]; None: each key is a row.
    weights : Tensor [n] float32, or None
    restore : callable
        Gives the output [rows, dim] the form of the feature's keys.
    """

    values: tf.Tensor
    row_splits: tf.Tensor | None
    weights: tf.Tensor | None
    restore: Callable[[tf.Tensor], Any]


def flatten(owner: str, keys: Any, weights: Any = None, mask: Any = None, *, pooled: bool) -> FlatKeys:
    """Return the keys of a feature as a flat list.

    Parameters
    ----------
    owner : str
        What messages call the feature.
    keys : Tensor, RaggedTensor, SparseTensor, ndarray or nested list
    weights : of the structure of `keys`, float, or None
        Weights of keys within their row.
    mask : of the structure of `keys`, bool, or None
        Keys that are pooled; only for pooled rows.
    pooled : bool
        Whether the keys of the last axis become one row.

    Raises
    ------
    ValueError
        If the keys are neither integers nor strings, or have a form that cannot be pooled, or weights of another form.
    """
    keys = as_keys(owner, keys)
    if not pooled:
        if weights is not None:
            raise ValueError(f"{owner}: weights without a combiner, expected 'sum', 'mean' or 'sqrtn'")
        return _each(owner, keys)
    if mask is not None:
        keys, weights = _select(owner, keys, weights, mask)
    return _pooled(owner, keys, weights)


def as_keys(owner: str, keys: Any) -> Any:
    """Return keys as int64 or strings; unsigned 64-bit keys keep their bits."""
    if not isinstance(keys, (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)):
        keys = tf.convert_to_tensor(keys)
    if kind_of(owner, keys.dtype) == "string":
        return keys
    if keys.dtype == tf.uint64:
        return _map_values(keys, lambda values: tf.bitcast(values, tf.int64))
    return tf.cast(keys, tf.int64)


def kind_of(owner: str, dtype: Any) -> str:
    """Return the kind of keys of a dtype: "string" or "int64"."""
    dtype = tf.as_dtype(dtype)
    if dtype == tf.string:
        return "string"
    if not dtype.is_integer:
        hint = "; Keras casts inputs without a dtype: begin with keras.Input(shape, dtype='int64')"
        hint = hint if dtype.is_floating else ""
        raise ValueError(f"{owner}: keys of {dtype.name}, expected integers or strings{hint}")
    return "int64"


def is_key(keys: Any) -> Any:
    """Return which keys are keys, if key 0 or the empty string means none; of the structure of `keys`, bool."""
    return keys != (tf.constant("") if keys.dtype == tf.string else tf.zeros([], keys.dtype))


def _map_values(keys: Any, function: Callable[[tf.Tensor], tf.Tensor]) -> Any:
    if isinstance(keys, tf.RaggedTensor):
        return tf.ragged.map_flat_values(function, keys)
    return tf.sparse.map_values(function, keys) if isinstance(keys, tf.SparseTensor) else function(keys)


def _each(owner: str, keys: Any) -> FlatKeys:
    """Give each key a row of the output."""
    if isinstance(keys, tf.SparseTensor):
        raise ValueError(f"{owner}: sparse keys without a combiner, expected 'sum', 'mean' or 'sqrtn'")
    if isinstance(keys, tf.RaggedTensor):
        inner = _each(owner, keys.flat_values)
        return FlatKeys(inner.values, None, None, lambda rows: keys.with_flat_values(inner.restore(rows)))
    return FlatKeys(tf.reshape(keys, [-1]), None, None, lambda rows: _shaped(rows, keys.shape, tf.shape(keys)))


def _select(owner: str, keys: Any, weights: Any, mask: Any) -> tuple[Any, Any]:
    """Leave out the keys that a mask excludes."""
    if isinstance(keys, tf.SparseTensor):
        raise ValueError(f"{owner}: a mask of sparse keys, expected none; leave the keys out")
    return tf.ragged.boolean_mask(keys, mask), None if weights is None else tf.ragged.boolean_mask(weights, mask)


def _pooled(owner: str, keys: Any, weights: Any) -> FlatKeys:
    if keys.shape.rank is None or keys.shape.rank < 2:
        raise ValueError(
            f"{owner}: keys of rank {keys.shape.rank} with a combiner, expected [batch, keys] or more axes"
        )
    if weights is not None:
        weights = _weights_like(owner, keys, weights)
    if isinstance(keys, tf.SparseTensor):
        return _pooled_sparse(keys, weights)
    if isinstance(keys, tf.RaggedTensor) and keys.flat_values.shape.rank == 1:
        splits = keys.nested_row_splits
        flat = FlatKeys(keys.flat_values, tf.cast(splits[-1], tf.int64), weights, lambda rows: rows)
        if len(splits) == 1:
            return flat
        restore = tf.RaggedTensor.from_nested_row_splits
        return FlatKeys(flat.values, flat.row_splits, weights, lambda rows: restore(rows, splits[:-1], validate=False))
    if isinstance(keys, tf.RaggedTensor):
        inner = _pooled(owner, keys.flat_values, None)
        restore_inner = inner.restore
        return FlatKeys(
            inner.values, inner.row_splits, weights, lambda rows: keys.with_flat_values(restore_inner(rows))
        )
    shape = tf.shape(keys, tf.int64)
    rows = tf.reduce_prod(shape[:-1])
    row_splits = tf.range(rows + 1) * shape[-1]
    return FlatKeys(
        tf.reshape(keys, [-1]), row_splits, weights, lambda pooled: _shaped(pooled, keys.shape[:-1], shape[:-1])
    )


def _pooled_sparse(keys: tf.SparseTensor, weights: tf.Tensor | None) -> FlatKeys:
    leading, shape = keys.shape[:-1], keys.dense_shape[:-1]
    if keys.shape.rank > 2:
        keys = tf.sparse.reshape(keys, [-1, keys.dense_shape[-1]])
    rows = tf.RaggedTensor.from_value_rowids(keys.values, keys.indices[:, 0], keys.dense_shape[0])
    return FlatKeys(keys.values, rows.row_splits, weights, lambda pooled: _shaped(pooled, leading, shape))


def _weights_like(owner: str, keys: Any, weights: Any) -> tf.Tensor:
    """Return weights [n] float32 of keys of the same structure."""
    if not isinstance(weights, (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)):
        weights = tf.convert_to_tensor(weights, tf.float32)
    for kind in (tf.SparseTensor, tf.RaggedTensor):
        if isinstance(keys, kind) != isinstance(weights, kind):
            forms = f"weights are {type(weights).__name__}, keys {type(keys).__name__}"
            raise ValueError(f"{owner}: {forms}, expected the same structure")
    if not keys.shape.is_compatible_with(weights.shape):
        raise ValueError(f"{owner}: weights of shape {weights.shape}, expected {keys.shape}, as the keys")
    if isinstance(keys, tf.SparseTensor):
        return tf.cast(weights.values, tf.float32)
    flat = weights.flat_values if isinstance(weights, tf.RaggedTensor) else weights
    return tf.cast(tf.reshape(flat, [-1]), tf.float32)


def _shaped(rows: tf.Tensor, static: tf.TensorShape, shape: tf.Tensor) -> tf.Tensor:
    """Return rows [product of `shape`, dim] as [*shape, dim]."""
    if static.rank == 1:
        return rows
    dim = rows.shape[-1]
    output = tf.reshape(rows, tf.concat([shape, tf.constant([dim], shape.dtype)], 0))
    output.set_shape(static.concatenate([dim]))
    return output
