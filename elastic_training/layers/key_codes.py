# SPDX-License-Identifier: Apache-2.0
"""Codes of keys, and the bits of a code, in TensorFlow's own ops; graph-tools fuses these forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# The constants of SplitMix64, as in src/base/hash.h.
GOLDEN_STEP = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS = (30, 27, 31)
_WORD = (1 << 64) - 1
# The largest power of two that is a number of buckets; a fingerprint of 62 bits remains.
_STRING_BUCKETS = 1 << 62


def code_of(keys: tf.Tensor, seed: int) -> tf.Tensor:
    """Return a hash of each key, of which every bit depends on every bit of the key.

    Parameters
    ----------
    keys : Tensor [...] int64 or string
    seed : int
        Different seeds give independent codes.

    Returns
    -------
    Tensor [...] uint64

    Notes
    -----
    Different integers have different codes: this is the finalizer of SplitMix64, a bijection. Of strings it takes the
    lower 62 bits of their Fingerprint64.
    """
    if keys.dtype == tf.string:
        keys = tf.strings.to_hash_bucket_fast(keys, _STRING_BUCKETS)
    code = tf.bitcast(keys, tf.uint64) + _word(GOLDEN_STEP * (seed + 1) & _WORD)
    for shift, factor in zip(_SHIFTS[:2], _FACTORS, strict=True):
        code = _xor_shift(code, shift) * _word(factor)
    return _xor_shift(code, _SHIFTS[2])


def bits_of(code: tf.Tensor, positions: Sequence[int]) -> tf.Tensor:
    """Return the number that some bits of a code form.

    Parameters
    ----------
    code : Tensor [...] uint64
    positions : sequence of int
        Position of each bit of the number in the code, from the lowest bit on; at most 63.

    Returns
    -------
    Tensor [...] int64
        In [0, 2^len(positions)).
    """
    first, count = positions[0], len(positions)
    if list(positions) == list(range(first, first + count)):
        shifted = tf.bitwise.right_shift(code, _word(first)) if first else code
        return tf.bitcast(tf.bitwise.bitwise_and(shifted, _word((1 << count) - 1)), tf.int64)
    single = tf.bitwise.right_shift(tf.expand_dims(code, -1), _words(positions))
    single = tf.bitwise.bitwise_and(single, _word(1))
    return tf.bitcast(tf.reduce_sum(tf.bitwise.left_shift(single, _words(range(count))), -1), tf.int64)


def _xor_shift(code: tf.Tensor, by: int) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(code, tf.bitwise.right_shift(code, _word(by)))


def _word(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint64)


def _words(values: Any) -> tf.Tensor:
    return tf.constant(np.array(list(values), np.uint64))
