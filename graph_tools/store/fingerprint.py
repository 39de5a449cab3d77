# SPDX-License-Identifier: Apache-2.0
"""Compute the hashes that a table's index uses."""

from __future__ import annotations

import numpy as np

from graph_tools.tensors import Array

_LOW = np.uint64(0xFFFFFFFF)


def fingerprints(strings: Array) -> Array:
    """Return FarmHash's `Fingerprint64` [n] uint64 of strings [n] (bytes), which `StringToHashBucketFast` reduces."""
    if not len(strings):
        return np.empty(0, np.uint64)
    import tensorflow as tf

    with tf.device("CPU:0"):
        raw: Array = tf.fingerprint(tf.constant(strings, tf.string)).numpy()
    return np.ascontiguousarray(raw).view("<u8").reshape(-1)


def homes(keys: Array, home_buckets: int) -> Array:
    """Return the home buckets [n] uint64 of keys [n] uint64: `(mix(key) · home_buckets) >> 64`."""
    mixed = keys.astype(np.uint64)
    mixed ^= mixed >> np.uint64(33)
    mixed *= np.uint64(0xFF51AFD7ED558CCD)
    mixed ^= mixed >> np.uint64(33)
    mixed *= np.uint64(0xC4CEB9FE1A85EC53)
    mixed ^= mixed >> np.uint64(33)
    # The upper 64 of 128 bits: home_buckets is below 2^32, so that neither product exceeds 64 bits.
    count = np.uint64(home_buckets)
    low = ((mixed & _LOW) * count) >> np.uint64(32)
    found: Array = ((mixed >> np.uint64(32)) * count + low) >> np.uint64(32)
    return found
