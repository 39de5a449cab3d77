# SPDX-License-Identifier: Apache-2.0
"""Test hashes against TensorFlow and against integers of any length."""

import numpy as np
import pytest

from graph_tools.store.fingerprint import fingerprints, homes


def strings() -> np.ndarray:
    made = [b"x" * length for length in (*range(70), 127, 128, 129, 1000, 100_000)]
    made += [b"\xff\x00\xfe", "Ωmega".encode(), b"C14_fe8e7a"]
    array = np.empty(len(made), object)
    array[:] = made
    return array


@pytest.mark.parametrize("buckets", [1, 2, 1000, 1 << 31, (1 << 61) - 1, (1 << 63) - 1])
def test_fingerprints_are_those_of_the_hashing_op(buckets: int) -> None:
    import tensorflow as tf

    expected = tf.strings.to_hash_bucket_fast(tf.constant(strings()), buckets).numpy()
    np.testing.assert_array_equal(fingerprints(strings()) % np.uint64(buckets), expected.astype(np.uint64))


def test_fingerprints_of_no_strings() -> None:
    assert fingerprints(np.empty(0, object)).shape == (0,)


def test_homes_are_the_upper_half_of_a_product() -> None:
    def mix(x: int) -> int:
        mask = (1 << 64) - 1
        x ^= x >> 33
        x = x * 0xFF51AFD7ED558CCD & mask
        x ^= x >> 33
        x = x * 0xC4CEB9FE1A85EC53 & mask
        return x ^ (x >> 33)

    keys = [0, 1, 2, 12345678901, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    for count in (1, 3, 1000, (1 << 31) + 7, (1 << 32) - 1):
        expected = [mix(key) * count >> 64 for key in keys]
        assert homes(np.array(keys, np.uint64), count).tolist() == expected
