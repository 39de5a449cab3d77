# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from graph_tools.errors import UnreadableError
from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.tables import checks
from graph_tools.tensors import Array, ArrayTensor, StreamTensor


def make_table(*parts: tuple[Any, Any]) -> SparseTable:
    made = [
        Part(ArrayTensor(np.asarray(keys, np.int64)), ArrayTensor(np.asarray(rows, np.float32))) for keys, rows in parts
    ]
    return SparseTable("users", "hps", np.dtype(np.int64), 2, np.dtype(np.float32), made, Absent(None, "zeros"))


def test_a_valid_table_passes_the_checks() -> None:
    checks.check_table(make_table(([1, -2], [[0, 1], [2, 3]]), ([5], [[9.9e29, -9.9e29]])))


def test_keys_and_rows_of_different_length() -> None:
    with pytest.raises(UnreadableError, match=r"table users: 3 keys and 2 rows, expected equally many"):
        checks.check_table(make_table(([1, 2, 3], [[0, 1], [2, 3]])))


def test_rows_of_another_length_and_type() -> None:
    with pytest.raises(UnreadableError, match=r"table users, part 1: rows float32\[1, 3\], expected float32\[n, 2\]"):
        checks.check_table(make_table(([1], [[0, 1]]), ([2], [[0, 1, 2]])))
    table = make_table(([1], [[0, 1]]))
    table.key_dtype = np.dtype(np.uint64)
    with pytest.raises(UnreadableError, match=r"keys int64\[1\], expected uint64\[n\]"):
        checks.check_table(table)


def test_frequencies_of_another_length() -> None:
    table = make_table(([1, 2], [[0, 1], [2, 3]]))
    table.parts[0].frequencies = ArrayTensor(np.ones(3, np.float32))
    with pytest.raises(UnreadableError, match="3 frequencies for 2 keys"):
        checks.check_table(table)


def test_an_empty_table() -> None:
    with pytest.raises(UnreadableError, match="table users: no keys"):
        checks.check_table(make_table(([], np.empty((0, 2)))))
    with pytest.raises(UnreadableError, match="table users: no keys"):
        checks.check_table(make_table())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, -1e38])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_that_cannot_be_weights(value: float, dtype: type) -> None:
    rows = np.zeros((5, 2), dtype)
    rows[3, 1] = value
    table = make_table(([1], [[0, 0]]), (range(10, 15), rows))
    table.parts[1].rows = ArrayTensor(rows)
    with pytest.raises(
        UnreadableError, match=r"table users, part 1: row 3 \(key 13\) has .* in column 1, expected finite"
    ):
        checks.scan_values(table)


def test_a_half_precision_infinity_is_refused() -> None:
    table = make_table(([7], [[0, 0]]))
    table.parts[0].rows = ArrayTensor(np.array([[1, np.inf]], np.float16))
    with pytest.raises(UnreadableError, match=r"key 7"):
        checks.scan_values(table)


@pytest.mark.parametrize("memory", [1 << 30, 20_000])
@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32])
def test_duplicates_are_found_with_any_memory(memory: int, dtype: type) -> None:
    random = np.random.default_rng(1)
    # Beyond the positive range of int64 for the unsigned type: no detour over signed or floating numbers.
    keys = random.permutation(np.arange(20_000)).astype(dtype)
    if dtype is np.uint64:
        keys += np.uint64(2**64 - 20_000)
    assert checks.find_duplicate(ArrayTensor(keys), memory) is None
    twice = keys.copy()
    twice[19_999] = twice[3]
    assert checks.find_duplicate(ArrayTensor(twice), memory) == int(twice[3])
    assert checks.find_duplicate([ArrayTensor(keys[:9]), ArrayTensor(keys[5:])], memory) in {
        int(key) for key in keys[5:9]
    }


def test_duplicates_need_no_more_memory_than_given() -> None:
    taken = []

    def blocks(rows: int) -> Iterator[Array]:
        taken.append(rows)
        for begin in range(0, 100_000, 1000):
            yield np.arange(begin, begin + 1000, dtype=np.int64)

    assert checks.find_duplicate(StreamTensor(np.dtype(np.int64), (100_000,), blocks), 100_000) is None
    assert len(taken) == 9  # passes: nine bytes a key


def test_one_key_again_and_again_does_not_fill_memory() -> None:
    several = np.arange(1000)
    key = int(several[checks.mix(several) % np.uint64(90) == 0][0])  # of the first of the 90 groups that this makes

    def blocks(rows: int) -> Iterator[Array]:
        for number in range(1000):
            assert number < 100, "the key has been seen twice long ago"
            yield np.full(1000, key, np.int64)

    assert checks.find_duplicate(StreamTensor(np.dtype(np.int64), (1_000_000,), blocks), 100_000) == key


@pytest.mark.parametrize("memory", [1 << 30, 1000])
def test_duplicate_strings(memory: int) -> None:
    keys = np.array([b"a", b"", b"\xff\x00", *[str(i).encode() for i in range(50)]], object)
    assert checks.find_duplicate(ArrayTensor(keys), memory) is None
    assert (
        checks.find_duplicate([ArrayTensor(keys), ArrayTensor(np.array([b"\xff\x00"], object))], memory) == b"\xff\x00"
    )


def test_key_sets_are_compared_in_any_order() -> None:
    keys = np.arange(-500, 500, dtype=np.int64)
    turned = ArrayTensor(keys[::-1].copy())
    assert checks.same_key_set(ArrayTensor(keys), turned)
    assert checks.same_key_set([ArrayTensor(keys[:7]), ArrayTensor(keys[7:])], turned)
    assert checks.same_key_set(ArrayTensor(keys.astype(np.int32)), turned)
    assert not checks.same_key_set(ArrayTensor(keys[1:]), turned)
    other = keys.copy()
    other[5] = 1000
    assert not checks.same_key_set(ArrayTensor(other), turned)
    # Equal sums and equal exclusive ors of the keys themselves.
    assert not checks.same_key_set(ArrayTensor(np.array([1, 2, 4, 7])), ArrayTensor(np.array([0, 3, 5, 6])))
    strings = np.array([b"a", b"b"], object)
    assert checks.same_key_set(ArrayTensor(strings), ArrayTensor(strings[::-1]))
    assert not checks.same_key_set(ArrayTensor(strings), ArrayTensor(strings[:1]))
