# SPDX-License-Identifier: Apache-2.0
"""The assignment of keys to arms: the same in Python and in the library, even, and independent between layers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from processor._ffi import ffi
from processor._lib import get_lib
from serving_proxy.experiments.assign import BUCKETS, Arm, assign, bucket, buckets

# As in tests/libprocessor/host/desired/test_routing.cc.
VECTORS = [
    (b"", b"", 7227),
    (b"", b"0", 2051),
    (b"ranking", b"user-1", 7677),
    (b"ranking", b"user-2", 6885),
    (b"2026-11", b"17", 502),
    (b"2026-11", b"-9223372036854775808", 775),
    (b"a", b"bc", 8723),
    (b"ab", b"c", 7831),
    (b"salt", bytes(range(256)), 7010),
    ("ä".encode(), "ключ".encode(), 8241),
    (b"s", b"\0", 9009),
]


def library_buckets(salt: bytes, keys: list[bytes]) -> np.ndarray:
    call = get_lib().processor_routing_bucket
    held = ffi.new("char[]", salt)
    return np.fromiter((call(held, len(salt), ffi.from_buffer(key), len(key)) for key in keys), np.int64, len(keys))


@pytest.mark.parametrize(("salt", "key", "expected"), VECTORS)
def test_fixed_keys_have_fixed_buckets(salt: bytes, key: bytes, expected: int) -> None:
    assert bucket(salt, key) == expected
    assert buckets(salt, [key]).tolist() == [expected]
    assert library_buckets(salt, [key]).tolist() == [expected]


def test_a_million_keys_are_assigned_as_in_the_library() -> None:
    # Numbers, and bytes of every length and value, zeros at the end among them.
    random = np.random.default_rng(7)
    lengths = random.integers(0, 40, 500_000)
    blob = random.integers(0, 256, int(lengths.sum()), np.uint8).tobytes()
    ends = np.cumsum(lengths)
    keys = [blob[end - length : end] for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]
    keys += [b"%d" % number for number in random.integers(-(2**63), 2**63 - 1, 500_000).tolist()]
    found = buckets("2026-11", keys)
    np.testing.assert_array_equal(found, library_buckets(b"2026-11", keys))
    some = random.integers(0, len(keys), 20_000).tolist()
    assert [bucket("2026-11", keys[i]) for i in some] == found[some].tolist()


def test_numbers_count_as_their_decimal_text() -> None:
    numbers = [0, -1, 17, 2**63 - 1, -(2**63)]
    expected = [bucket("layer", str(number).encode()) for number in numbers]
    assert [bucket("layer", number) for number in numbers] == expected
    assert buckets("layer", np.array(numbers, np.int64)).tolist() == expected
    assert buckets("layer", numbers).tolist() == expected
    assert bucket("layer", np.int64(17)) == bucket("layer", "17")


def test_text_counts_as_utf_8() -> None:
    assert bucket("ä", "ключ") == bucket("ä".encode(), "ключ".encode())
    assert buckets("ä", np.array(["ключ", "x"])).tolist() == [bucket("ä", "ключ"), bucket("ä", "x")]


def test_an_empty_list_of_keys_has_no_buckets() -> None:
    assert buckets("layer", []).tolist() == []
    assert buckets("layer", [b"", b""]).tolist() == [bucket("layer", b"")] * 2


def test_arms_get_their_share_and_the_baseline_the_rest() -> None:
    arms = [Arm(4, 0, 1000), Arm(5, 5000, 2500)]
    versions = [assign("salt", number, arms, baseline=3) for number in range(20_000)]
    numbers = buckets("salt", np.arange(20_000))
    assert versions == [4 if b < 1000 else 5 if 5000 <= b < 7500 else 3 for b in numbers.tolist()]
    for version, share in ((3, 0.65), (4, 0.1), (5, 0.25)):
        assert versions.count(version) == pytest.approx(20_000 * share, abs=5 * math.sqrt(20_000 * share))


def chi_square(observed: np.ndarray, expected: np.ndarray) -> float:
    """The statistic in standard deviations from its mean, for many degrees of freedom."""
    freedom = observed.size - 1
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return (statistic - freedom) / math.sqrt(2 * freedom)


@pytest.mark.parametrize("kind", ["numbers", "user-N", "hexadecimal"])
def test_buckets_are_even(kind: str) -> None:
    count = 400_000
    shape = {"numbers": b"%d", "user-N": b"user-%07d", "hexadecimal": b"%016x"}[kind]
    found = np.bincount(buckets("even", [shape % number for number in range(count)]), minlength=BUCKETS)
    assert found.size == BUCKETS
    # As even as chance has it: neither uneven nor suspiciously even.
    assert abs(chi_square(found, np.full(BUCKETS, count / BUCKETS))) < 4.5


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("layer-1", "layer-2"), ("2026-11", "2026-12"), ("", "0")])
def test_layers_are_independent(first: str, second: str) -> None:
    # Cells of a table of 50 by 50, from layers whose salts differ in one character.
    numbers = np.arange(300_000)
    cells = buckets(first, numbers) // 200 * 50 + buckets(second, numbers) // 200
    assert abs(chi_square(np.bincount(cells, minlength=2500), np.full(2500, numbers.size / 2500))) < 4.5
