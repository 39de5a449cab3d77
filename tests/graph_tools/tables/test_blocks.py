# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from graph_tools.errors import UnreadableError
from graph_tools.tables.blocks import aligned, as_int64, of_sparse_table, of_variable
from graph_tools.tensors import ArrayTensor, StreamTensor
from helpers.models.sparse_table_models import make_table


def ragged(array: np.ndarray, sizes: list[int]) -> StreamTensor:
    """Return a tensor that gives blocks of these sizes, whatever is asked, some of them empty."""

    def make(rows: int) -> Iterator[np.ndarray]:
        begin = 0
        for size in sizes:
            yield array[begin : begin + size]
            begin += size

    return StreamTensor(array.dtype, array.shape, make)


def test_blocks_of_several_tensors_come_side_by_side() -> None:
    a, b = np.arange(10), np.arange(20).reshape(10, 2)
    found = list(aligned([ragged(a, [3, 0, 4, 3]), ragged(b, [1, 8, 1])], 4))
    np.testing.assert_array_equal(np.concatenate([keys for keys, _ in found]), a)
    np.testing.assert_array_equal(np.concatenate([two for _, two in found]), b)
    assert all(len(keys) == len(two) for keys, two in found)


def test_tensors_of_different_length_are_refused() -> None:
    with pytest.raises(UnreadableError, match="lengths 10, 9 or fewer, expected equal ones"):
        list(aligned([ArrayTensor(np.arange(10)), ArrayTensor(np.arange(9))], 4))


def test_rows_are_numbered_through_all_parts() -> None:
    keys, rows = np.arange(100) * 3, np.arange(300, dtype=np.float32).reshape(100, 3)
    source = of_sparse_table(make_table(keys, rows, parts=3))
    blocks = list(source.blocks(limit=1))
    assert [block.begin for block in blocks] == np.cumsum([0, *(len(block) for block in blocks[:-1])]).tolist()
    assert {block.part for block in blocks} == {0, 1, 2}
    np.testing.assert_array_equal(np.concatenate([block.keys for block in blocks if block.keys is not None]), keys)
    np.testing.assert_array_equal(np.concatenate([block.rows for block in blocks if block.rows is not None]), rows)
    assert sum(map(len, source.blocks(keys=False, rows=False))) == 100


def test_keys_of_a_variable_are_its_row_numbers() -> None:
    source = of_variable("v", ArrayTensor(np.zeros((200, 1), np.float32)))
    found = [block.keys for block in source.blocks(rows=False, limit=1) if block.keys is not None]
    np.testing.assert_array_equal(np.concatenate(found), np.arange(200))
    assert source.source_bytes == 800


def test_keys_are_what_the_graph_looks_up() -> None:
    assert as_int64(np.array([-1], np.int32)).tolist() == [-1]
    assert as_int64(np.array([2**64 - 1], np.uint64)).tolist() == [-1]
    assert as_int64(np.array([b"x"], object)).tolist() == [b"x"]
