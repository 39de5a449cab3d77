# SPDX-License-Identifier: Apache-2.0
"""Which rows keys have: every place is within its part, and the parts are those of the published formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
from elastic_training.layers.key_codes import GOLDEN_STEP, bits_of, code_of
from elastic_training.layers.row_codes import RowCode

WORD = (1 << 64) - 1
CODES = [
    et.BinaryCode(1, 1),
    et.BinaryCode(10, 3),
    et.BinaryCode(10, 3, "skip"),
    et.BinaryCode(10, 10, "skip"),
    et.BinaryCode(26, 2, "succession", 7),
    et.BinaryCode(33, 3, "skip", 7),
    et.BinaryCode(64, 4),
    et.BinaryCode(64, 4, "skip"),
    et.BinaryCode(64, 64),
    et.Hashes(1, 1),
    et.Hashes(1000, 3),
    et.Hashes((1 << 20) - 3, 2, seed=5),
    et.QuotientRemainder(1, 1),
    et.QuotientRemainder(1000, 777),
    et.QuotientRemainder(1 << 30, 1 << 30),
]
NAMES = [str(code.to_config()) for code in CODES]


def edge_keys() -> np.ndarray[Any, np.dtype[np.int64]]:
    """Every single bit, all bits up to each, the numbers around them, and random words."""
    powers = [1 << bit for bit in range(64)]
    near = [(power + by) & WORD for power in powers for by in (-1, 0, 1)]
    words = np.array([0, WORD, *near, *((WORD ^ power) for power in powers)], np.uint64)
    random = np.random.default_rng(0).integers(0, WORD, 20_000, np.uint64, endpoint=True)
    return np.concatenate([words, random]).view(np.int64)


def mixed(key: int, seed: int) -> int:
    """SplitMix64 in integers of Python."""
    word = (key + GOLDEN_STEP * (seed + 1)) & WORD
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & WORD
    return word ^ word >> 31


@pytest.mark.parametrize("code", CODES, ids=NAMES)
def test_every_place_is_a_row_of_its_part(code: RowCode) -> None:
    strings = tf.constant(["", "a", "ä", "x" * 1000, *(str(number) for number in range(2000))])
    for keys in (tf.constant(edge_keys()), strings):
        for place, size in zip(code.places(keys), code.sizes, strict=True):
            assert place.dtype == tf.int64
            numbers = place.numpy()
            assert numbers.min() >= 0
            assert numbers.max() < size
            assert numbers.max() >= 0.9 * (size - 1) or size > 1000
    assert code.offsets == tuple(np.cumsum([0, *code.sizes[:-1]]).tolist())
    assert RowCode.from_config(code.to_config()) == code


@pytest.mark.parametrize("word", [0, WORD, 1, 1 << 63, 0xAAAAAAAAAAAAAAAA, 0x5555555555555555])
@pytest.mark.parametrize("code", [code for code in CODES if isinstance(code, et.BinaryCode)], ids=str)
def test_all_patterns_of_code_bits_stay_in_their_block(word: int, code: et.BinaryCode) -> None:
    words = tf.constant(np.array([word], np.uint64))
    for positions, size in zip(code.positions(), code.sizes, strict=True):
        expected = sum((word >> position & 1) << bit for bit, position in enumerate(positions))
        assert bits_of(words, positions).numpy().tolist() == [expected]
        assert expected < size


def test_blocks_are_those_that_were_published() -> None:
    assert et.BinaryCode(10, 3).positions() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert et.BinaryCode(10, 3, "skip").positions() == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    for cut in ("succession", "skip"):
        used = sorted(bit for block in et.BinaryCode(37, 5, cut).positions() for bit in block)
        assert used == list(range(37))


@pytest.mark.parametrize("seed", [0, 1, (1 << 63) - 1])
def test_codes_are_those_of_split_mix(seed: int) -> None:
    keys = edge_keys()[:300]
    expected = [mixed(int(key) & WORD, seed) for key in keys]
    assert code_of(tf.constant(keys), seed).numpy().tolist() == expected
    fingerprints = tf.strings.to_hash_bucket_fast(["a", "b"], 1 << 62).numpy().tolist()
    assert code_of(tf.constant(["a", "b"]), seed).numpy().tolist() == [mixed(one, seed) for one in fingerprints]


def test_binary_codes_tell_almost_all_keys_apart() -> None:
    keys = tf.constant(np.arange(200_000))
    pairs = np.stack([place.numpy() for place in et.BinaryCode(52, 4, "skip").places(keys)])
    assert len(np.unique(pairs, axis=1).T) == 200_000
    counts = np.bincount(pairs[0], minlength=1 << 13)
    # 24.4 keys a row, as a Poisson distribution has them.
    assert counts.var() == pytest.approx(counts.mean(), rel=0.1)


def test_hashes_are_independent() -> None:
    keys = tf.constant(np.arange(100_000))
    first, second = (place.numpy() for place in et.Hashes(100, 2).places(keys))
    together = np.bincount(first * 100 + second, minlength=10_000)
    assert together.var() == pytest.approx(together.mean(), rel=0.1)


def test_quotient_and_remainder_tell_all_keys_of_their_range_apart() -> None:
    code = et.QuotientRemainder(7, 13)
    quotients, remainders = (place.numpy() for place in code.places(tf.range(7 * 13, dtype=tf.int64)))
    np.testing.assert_array_equal(quotients * 13 + remainders, np.arange(7 * 13))
    beyond = [place.numpy().tolist() for place in code.places(tf.constant([91, -1], tf.int64))]
    assert beyond == [[0, 6], [0, 12]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: et.BinaryCode(0, 1), "bits is 0"),
        (lambda: et.BinaryCode(65, 4), "bits is 65"),
        (lambda: et.BinaryCode(10, 11), "blocks is 11"),
        (lambda: et.BinaryCode(9, 6), "leave a block without bits"),
        (lambda: et.BinaryCode(64, 2), "a block of 32 bits"),
        (lambda: et.BinaryCode(62, 2), "4294967296 rows"),
        (lambda: et.BinaryCode(8, 2, "steps"), "cut is 'steps'"),
        (lambda: et.Hashes(0), "each is 0"),
        (lambda: et.Hashes(10, 65), "count is 65"),
        (lambda: et.QuotientRemainder(10, 0), "remainders is 0"),
        (lambda: et.QuotientRemainder(1 << 31, 1), "2147483649 rows"),
        (lambda: RowCode.from_config({"kind": "hash", "each": 3}), "expected one of binary_code, hashes"),
    ],
)
def test_codes_without_rows_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
