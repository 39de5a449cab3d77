# SPDX-License-Identifier: Apache-2.0
"""`RecCollapseRows` and `RecExpandRows`: one row for many equal ones, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.tensors import Array
from helpers.oracles.op_graphs import OpGraph

DTYPES = [np.float32, np.float64, np.int8, np.int32, np.int64, np.bool_, np.complex128, np.float16, object]


def values(dtype: Any, *shape: int, seed: int = 0) -> Array:
    numbers = np.random.default_rng(seed).integers(0, 2 if dtype is np.bool_ else 100, shape)
    if dtype is not object:
        return numbers.astype(dtype)
    # Some longer than what a tstring holds inside.
    return np.array([b"w%d" % n * (1 + n % 5) for n in numbers.flat], object).reshape(shape)


def collapse(*inputs: Array, rows: int | None = None) -> list[Array]:
    types: list[Any] = [np.asarray(source).dtype.type if source.dtype != object else object for source in inputs]
    types = [object if dtype_ is np.object_ else dtype_ for dtype_ in types]
    like = np.zeros(max(len(rows_of_input) for rows_of_input in inputs) if rows is None else rows, np.float32)
    attrs = {"T": types, "Tlike": np.float32}
    return OpGraph("RecCollapseRows", [*types, np.float32], attrs, outputs=len(inputs))(*inputs, like)


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_rows_collapse_and_expand_again(dtype: Any) -> None:
    expand = OpGraph("RecExpandRows", [dtype, np.float32], {"T": dtype, "Tlike": np.float32})
    for shape in ((), (1,), (3,), (2, 5)):
        row = values(dtype, 1, *shape)
        rows = np.repeat(row, 7, 0)
        (found,) = collapse(rows)
        np.testing.assert_array_equal(found, row)
        np.testing.assert_array_equal(expand(found, np.zeros((7, 2), np.float32))[0], rows)
        np.testing.assert_array_equal(expand(rows, np.zeros(7, np.float32))[0], rows)
        assert expand(found, np.zeros(0, np.float32))[0].shape == (0, *shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("place", [(0, 0), (3, 2), (6, 4)])
def test_one_different_element_keeps_all_rows(dtype: Any, place: tuple[int, int]) -> None:
    same = np.repeat(values(dtype, 1, 5), 7, 0)
    other = same.copy()
    other[place] = b"other" if dtype is object else not same[place] if dtype is np.bool_ else same[place] + 1
    for inputs in ((other,), (same, other), (other, same)):
        for found, given in zip(collapse(*inputs), inputs, strict=True):
            np.testing.assert_array_equal(found, given)


def test_inputs_of_one_row_are_collapsed_with_those_of_many() -> None:
    one, many = values(np.int64, 1, 2), np.repeat(values(object, 1, 3), 4, 0)
    found = collapse(one, many)
    np.testing.assert_array_equal(found[0], one)
    np.testing.assert_array_equal(found[1], many[:1])
    # What the others have differs: all have as many rows.
    for row in (one, values(object, 1, 2, 2), np.zeros((1, 0), np.float32)):
        rows = values(object, 4, 3)
        found = collapse(row, rows)
        np.testing.assert_array_equal(found[0], np.repeat(row, 4, 0))
        np.testing.assert_array_equal(found[1], rows)
    for found in collapse(one, values(object, 1, 3), rows=7):
        assert len(found) == 1


def test_empty_batches_stay_empty() -> None:
    assert collapse(np.zeros((0, 3), np.float32))[0].shape == (0, 3)
    assert collapse(np.zeros((4, 0), np.float32))[0].shape == (1, 0)
    # One user, and no items to score.
    assert collapse(np.zeros((1, 3), np.float32), rows=0)[0].shape == (1, 3)
    assert [len(tensor) for tensor in collapse(values(np.int64, 1, 2), values(object, 0, 2), rows=0)] == [0, 0]


def test_strings_of_equal_beginnings_differ() -> None:
    rows = np.array([b"a" * 30, b"a" * 30, b"a" * 29 + b"b"], object)
    np.testing.assert_array_equal(collapse(rows)[0], rows)
    rows = np.array([b"a", b"a\0"], object)
    assert len(collapse(rows)[0]) == 2


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="input 0: 3 rows, expected 1 or 4 as like has"):
        collapse(values(np.int64, 3), values(np.int64, 4))
    for users in (0, 3):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"input 0: {users} rows, expected 1 or 1 as like has"):
            collapse(np.zeros((users, 2), np.float32), rows=1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="input 0: a scalar"):
        collapse(np.array(1.0, np.float32), rows=1)
    expand = OpGraph("RecExpandRows", [np.float32, np.int64], {"T": np.float32, "Tlike": np.int64})
    with pytest.raises(tf.errors.InvalidArgumentError, match="value: 2 rows, expected 1 or 3 as like has"):
        expand(np.zeros((2, 2), np.float32), np.zeros(3, np.int64))
