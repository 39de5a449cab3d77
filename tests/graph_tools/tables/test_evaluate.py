# SPDX-License-Identifier: Apache-2.0
"""Test lookups in NumPy against rows that were computed by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.tables.evaluate import evaluate_lookup, find_rows, paired_chunks
from graph_tools.tensors import ArrayTensor, StreamTensor

ZERO = Absent(None, "test")


def in_blocks(array: np.ndarray, size: int) -> StreamTensor:
    """Give an array in blocks of another size than is asked for."""

    def make(rows: int) -> Iterator[np.ndarray]:
        for begin in range(0, len(array), min(size, rows)):
            yield array[begin : begin + min(size, rows)]

    return StreamTensor(array.dtype, array.shape, make)


def table(*parts: Part, absent: Absent = ZERO, keys: Any = np.int64) -> SparseTable:
    return SparseTable("t", "tfra", np.dtype(keys), 2, np.dtype(np.float32), list(parts), absent)


def part(keys: list[Any], first: float, dtype: Any = np.int64, **more: Any) -> Part:
    rows = np.arange(first, first + 2 * len(keys), dtype=np.float32).reshape(-1, 2)
    return Part(in_blocks(np.array(keys, dtype), 2), in_blocks(rows, 3), **more)


def test_rows_of_several_parts_in_the_shape_of_the_keys() -> None:
    both = table(part([5, -1, 9, 4, 2**62], 0), part([7, 6], 100))
    found = evaluate_lookup(both, np.array([[9, 6, 9], [2**62, 8, -1]]))
    expected = [[[4, 5], [102, 103], [4, 5]], [[8, 9], [0, 0], [2, 3]]]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


def test_no_keys() -> None:
    assert evaluate_lookup(table(part([5], 0)), np.empty((0, 3), np.int64)).shape == (0, 3, 2)


def test_empty_table() -> None:
    np.testing.assert_array_equal(evaluate_lookup(table(part([], 0)), np.array([1])), [[0, 0]])


def test_keys_of_a_narrower_type() -> None:
    np.testing.assert_array_equal(evaluate_lookup(table(part([5, -1], 0)), np.array([-1], np.int32)), [[2, 3]])


def test_unsigned_keys() -> None:
    unsigned = table(part([2**64 - 1, 1], 0, np.uint64), keys=np.uint64)
    np.testing.assert_array_equal(evaluate_lookup(unsigned, np.array([1, 2**64 - 1], np.uint64)), [[2, 3], [0, 1]])


def test_string_keys() -> None:
    words = table(part([b"a", b"", b"\xff"], 0, object, ignored=np.array([b""], object)), keys=object)
    found = evaluate_lookup(words, np.array([b"\xff", b"", b"b"], object))
    np.testing.assert_array_equal(found, [[4, 5], [0, 0], [0, 0]])


def test_ignored_keys_are_absent() -> None:
    checked = table(part([5, 6, 7], 0, ignored=np.array([6, 99])), absent=Absent(np.ones((1, 2), np.float32), "test"))
    np.testing.assert_array_equal(evaluate_lookup(checked, np.array([5, 6, 7, 8])), [[0, 1], [1, 1], [4, 5], [1, 1]])
    rows, found = find_rows(checked, np.array([6, 7]))
    assert found.tolist() == [False, True]
    assert rows.tolist() == [[0, 0], [4, 5]]


def test_absent_row_by_remainder() -> None:
    rows = np.array([[1, 1], [2, 2], [3, 3]], np.float32)
    checked = table(part([3], 10), absent=Absent(rows, "test"))
    np.testing.assert_array_equal(evaluate_lookup(checked, np.array([3, 4, 5, 6])), [[10, 11], [2, 2], [3, 3], [1, 1]])


@pytest.mark.parametrize(
    ("default", "expected"),
    [([8, 9], [[0, 1], [8, 9], [8, 9]]), ([[1, 1], [2, 2], [3, 3]], [[0, 1], [2, 2], [3, 3]])],
)
def test_default_of_the_lookup_comes_before_that_of_the_table(default: Any, expected: Any) -> None:
    checked = table(part([5], 0), absent=Absent(np.full((1, 2), 77, np.float32), "test"))
    found = evaluate_lookup(checked, np.array([5, 6, 7]), np.array(default, np.float32))
    np.testing.assert_array_equal(found, expected)


def test_blocks_of_different_sizes_are_paired() -> None:
    a, b = np.arange(10), np.arange(10) * 2
    pairs = list(paired_chunks(in_blocks(a, 4), in_blocks(b, 3), 100))
    assert [len(pair) for pair, _ in pairs] == [3, 1, 2, 2, 1, 1]
    assert all((two == key * 2).all() for key, two in pairs)
    assert list(paired_chunks(ArrayTensor(a[:0]), ArrayTensor(b[:0]), 5)) == []
