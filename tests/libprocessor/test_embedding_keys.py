# SPDX-License-Identifier: Apache-2.0
"""The steps from values to keys are TensorFlow's ops, bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.plans import EmbeddingPlan
from graph_tools.plans import embedding_parts as plans
from graph_tools.plans.embedding_parts import GroupOutput, Key, Lookup
from graph_tools.tensors import Array
from helpers.oracles.embedding_groups import Group, table_of

ROWS = 5003
# Every length around the steps of the hashes, and long ones.
WORDS = [bytes((7 * i + n) % 256 for i in range(n)) for n in [*range(70), 100, 127, 128, 129, 200, 1000]]
INTEGERS = np.array([0, 1, -1, 9, -10, 12345, 2**31, -(2**31) - 1, 2**62, -(2**63), 2**63 - 1], np.int64)
REALS = np.array([-np.inf, -2.5, -1, 0, 0.1, 0.5, 1, 2, 2.0000001, 3, 1e30, np.inf, np.nan])


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose rows are their numbers."""
    return table_of(tmp_path_factory.mktemp("numbered"), np.arange(ROWS, dtype=np.float32)[:, None], absent_key="error")


def keys_of(table: Path, type_: Any, values: Any, *steps: plans.Step) -> list[int]:
    plan = EmbeddingPlan((GroupOutput(1),), (Key(0, steps=steps),), (Lookup(0, 0, 0, 0),))
    group = Group(plan, [type_], [table])
    found = group(values)[0]
    group.close()
    return [int(key) for key in found[:, 0]]


def test_hashes_of_strings_equal_tensorflow(numbered: Path) -> None:
    for buckets in (1, 2, 10, 1000, ROWS):
        fast = tf.strings.to_hash_bucket_fast(WORDS, buckets).numpy()
        assert keys_of(numbered, object, WORDS, plans.FastHash(buckets)) == list(fast)
    legacy = tf.strings.to_hash_bucket(WORDS, ROWS).numpy()
    assert keys_of(numbered, object, WORDS, plans.LegacyHash(ROWS)) == list(legacy)
    for seed in ([1, 2], [-1, 2**63 - 1]):
        strong = tf.strings.to_hash_bucket_strong(WORDS, ROWS, seed).numpy()
        assert keys_of(numbered, object, WORDS, plans.StrongHash(ROWS, tuple(seed))) == list(strong)


@pytest.mark.parametrize("type_", [np.int32, np.int64, np.uint32, np.uint64])
def test_hashes_of_numbers_equal_tensorflow(numbered: Path, type_: Any) -> None:
    values = INTEGERS.astype(type_)
    fast = tf.strings.to_hash_bucket_fast(tf.strings.as_string(values), ROWS).numpy()
    assert keys_of(numbered, type_, values, plans.ToString(), plans.FastHash(ROWS)) == list(fast)


@pytest.mark.parametrize("type_", [np.int32, np.int64, np.uint32, np.uint64])
def test_arithmetic_equals_tensorflow(numbered: Path, type_: Any) -> None:
    values = INTEGERS.astype(type_)
    wide = values if type_ is np.uint64 else values.astype(np.int64)
    remainders = tf.math.floormod(wide, tf.constant(ROWS, wide.dtype)).numpy()
    assert keys_of(numbered, type_, values, plans.Mod(ROWS)) == list(remainders)
    product = tf.constant(wide) * tf.constant(7919, wide.dtype) + tf.constant(17, wide.dtype)
    mixed = tf.math.floormod(product, tf.constant(ROWS, wide.dtype)).numpy()
    steps = (plans.Multiply(7919), plans.Add(17), plans.Mod(ROWS))
    assert keys_of(numbered, type_, values, *steps) == list(mixed)
    quotients = tf.math.floordiv(remainders, tf.constant(7, remainders.dtype)).numpy()
    assert keys_of(numbered, type_, values, plans.Mod(ROWS), plans.Divide(7)) == list(quotients)
    clipped = np.clip(wide, np.asarray(3, wide.dtype), np.asarray(4000, wide.dtype))
    assert keys_of(numbered, type_, values, plans.Clip(3, 4000)) == list(clipped)


@pytest.mark.parametrize("type_", [np.int32, np.int64, np.uint32, np.uint64])
def test_bits_equal_tensorflow(numbered: Path, type_: Any) -> None:
    values = INTEGERS.astype(type_)
    words = tf.constant(values.astype(np.int64).view(np.uint64))
    mixed = tf.bitwise.bitwise_xor(words, tf.bitwise.right_shift(words, tf.constant(31, tf.uint64)))
    for first, count, every in ((0, 12, 1), (52, 12, 1), (3, 11, 5), (63, 1, 1)):
        taken = np.zeros(len(values), np.int64)
        for bit in range(count):
            place = tf.constant(first + bit * every, tf.uint64)
            taken |= (tf.bitwise.right_shift(mixed, place).numpy() & np.uint64(1)).astype(np.int64) << bit
        assert keys_of(numbered, type_, values, plans.XorShift(31), plans.Bits(first, count, every)) == list(taken)


@pytest.mark.parametrize("type_", [np.float32, np.float64, np.int32, np.int64])
def test_buckets_of_numbers_equal_tensorflow(numbered: Path, type_: Any) -> None:
    boundaries = (-1.0, 0.1, 0.5, 0.5, 2.0, 16777217.0)
    values = REALS.astype(type_) if np.issubdtype(type_, np.floating) else np.array([-5, -1, 0, 2, 16777217, 2**30])
    values = values.astype(type_)
    buckets = tf.raw_ops.Bucketize(input=values, boundaries=list(boundaries)).numpy()
    assert keys_of(numbered, type_, values, plans.Bucketize(boundaries)) == list(buckets)
    then = (plans.Bucketize(boundaries), plans.ToString(), plans.FastHash(100))
    hashed = tf.strings.to_hash_bucket_fast(tf.strings.as_string(buckets), 100).numpy()
    assert keys_of(numbered, type_, values, *then) == list(hashed)


def pieces(values: list[bytes]) -> Iterator[list[bytes]]:
    for size in (1, 3, 64, 65):
        yield values[:size]


def test_strings_are_keys_of_string_tables(tmp_path: Path) -> None:
    rows = np.arange(len(WORDS), dtype=np.float32)[:, None]
    table = table_of(tmp_path, rows, WORDS)
    for words in pieces(WORDS[::-1]):
        assert keys_of(table, object, words) == [WORDS.index(word) for word in words]
    assert keys_of(table, object, [b"no word"]) == [0]
    digits = table_of(tmp_path, np.arange(200, dtype=np.float32)[:, None], [b"%d" % number for number in range(200)])
    numbers: Array = np.arange(199, -1, -1)
    assert keys_of(digits, np.int64, numbers, plans.ToString()) == list(numbers)
