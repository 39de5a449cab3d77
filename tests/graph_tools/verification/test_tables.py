# SPDX-License-Identifier: Apache-2.0
"""Test tables that are compared as streams: in equal order, in another order, with keys left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.errors import UnreadableError
from graph_tools.model import HashTableContent, Model
from graph_tools.model.stored_table import Reach
from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.tensors import ArrayTensor, StreamTensor, byte_size
from graph_tools.verification.compare import Tolerance
from graph_tools.verification.tables import Pair, compare_rows, compare_tables, largest_share

KEYS = np.array([7, -3, 2**60, 5, 11, 40, 41, 42], np.int64)
ROWS = np.arange(16, dtype=np.float32).reshape(8, 2) / 4


def _table(keys: Any = KEYS, rows: Any = ROWS, absent: Any = None, parts: int = 1, ignored: Any = None) -> SparseTable:
    pieces = [
        Part(ArrayTensor(k), ArrayTensor(r), ignored=ignored)
        for k, r in zip(np.array_split(keys, parts), np.array_split(rows, parts), strict=True)
    ]
    return SparseTable("t", "test", keys.dtype, 2, np.dtype(np.float32), pieces, Absent(absent, "test"))


def test_equal_tables_and_partitions() -> None:
    (found,) = compare_tables([Pair(_table(parts=3), _table())])
    assert found.equal
    assert (found.rows, found.stored, found.absent, found.different) == (8, 8, 0, 0)


@pytest.mark.parametrize("memory", [1 << 30, 100])
def test_another_order_is_the_same_table(memory: int) -> None:
    order = np.random.default_rng(0).permutation(8)
    (found,) = compare_tables([Pair(_table(), _table(KEYS[order], ROWS[order]))], memory=memory)
    assert found.equal
    assert (found.rows, found.stored) == (8, 8)


@pytest.mark.parametrize("shuffled", [False, True])
def test_rows_that_equal_the_absent_value_may_go(shuffled: bool) -> None:
    rows = ROWS.copy()
    rows[[1, 4, 7]] = 0
    kept = [0, 2, 3, 5, 6]
    kept = kept[::-1] if shuffled else kept
    (found,) = compare_tables([Pair(_table(rows=rows), _table(KEYS[kept], rows[kept]))])
    assert found.equal
    assert (found.stored, found.absent) == (5, 3)
    rows[4] = 1
    (lost,) = compare_tables([Pair(_table(rows=rows), _table(KEYS[kept], rows[kept]))])
    assert not lost.equal
    assert (lost.beyond, lost.worst) == (1, "key 11")


def test_ignored_keys_have_the_absent_value() -> None:
    a = _table(ignored=np.array([5, 42], np.int64))
    kept = [0, 1, 2, 4, 5, 6]
    assert compare_tables([Pair(a, _table(KEYS[kept], ROWS[kept]))])[0].equal
    assert not compare_tables([Pair(_table(), _table(KEYS[kept], ROWS[kept]))])[0].equal


def test_absent_values_are_compared() -> None:
    ones = np.ones((1, 2), np.float32)
    (found,) = compare_tables([Pair(_table(absent=ones), _table())])
    assert (found.beyond, found.worst) == (1, "absent key 0")
    matrix = np.arange(8, dtype=np.float32).reshape(4, 2)
    other = matrix.copy()
    other[3] += 1
    assert compare_tables([Pair(_table(absent=matrix), _table(absent=matrix))])[0].equal
    assert compare_tables([Pair(_table(absent=matrix), _table(absent=other))])[0].worst == "absent key 3"


def test_keys_of_the_result_alone_must_have_the_absent_value() -> None:
    keys = np.append(KEYS, 99)
    harmless = _table(keys, np.vstack([ROWS, np.zeros((1, 2), np.float32)]))
    (found,) = compare_tables([Pair(_table(), harmless)])
    assert found.equal
    assert found.extra == 1
    (wrong,) = compare_tables([Pair(_table(), _table(keys, np.vstack([ROWS, np.ones((1, 2), np.float32)])))])
    assert wrong.worst == "key 99"


def test_tolerance_and_string_keys() -> None:
    words = np.array([b"a", b"b", b"\xc3\xbc", b"d", b"e", b"f", b"g", b"h"], object)
    moved = ROWS.copy()
    moved[2] += 0.001
    pair = Pair(_table(words), _table(words[::-1].copy(), moved[::-1].copy()))
    (found,) = compare_tables([pair], Tolerance(0.01, 0))
    assert found.equal
    assert (found.different, found.worst) == (1, "key 'ü'")
    assert not compare_tables([pair], memory=64)[0].equal


def test_rows_of_variables() -> None:
    assert compare_rows("v", ArrayTensor(ROWS), ArrayTensor(ROWS)).equal
    changed = ROWS.copy()
    changed[6, 1] = np.nan
    found = compare_rows("v", ArrayTensor(ROWS), ArrayTensor(changed))
    assert (found.beyond, found.worst) == (1, "key 6")
    assert not compare_rows("v", ArrayTensor(ROWS), ArrayTensor(ROWS[:-1])).equal


def test_keys_and_rows_of_different_length_are_refused() -> None:
    broken = _table()
    broken.parts[0].keys = ArrayTensor(KEYS[:-1])
    with pytest.raises(UnreadableError, match="table 't': 7 keys and 8 rows"):
        compare_tables([Pair(broken, _table())])


def test_unreachable_rows_may_be_missing() -> None:
    kept = [0, 3, 4, 5, 6]
    result = _table(KEYS[kept], ROWS[kept])
    (found,) = compare_tables([Pair(_table(), result, Reach(0, 41))])
    assert found.equal
    assert (found.rows, found.stored, found.absent) == (5, 5, 0)
    assert not compare_tables([Pair(_table(), result, Reach(0, 42))])[0].equal


def test_parts_in_the_order_of_the_source_are_read_once() -> None:
    result = _table()
    reads = []

    def watched(rows: Any) -> Any:
        def make(count: int) -> Any:
            reads.append(count)
            return iter([rows])

        return StreamTensor(rows.dtype, rows.shape, make)

    # Every other key in a part of its own, each in the source's order.
    result.parts = [Part(ArrayTensor(KEYS[first::2]), watched(ROWS[first::2])) for first in (0, 1)]
    (found,) = compare_tables([Pair(_table(), result)], memory=100)
    assert found.equal
    assert found.stored == 8
    assert len(reads) == 2


def test_many_tables_that_are_small_are_streamed_as_well() -> None:
    from graph_tools.graph import Graph

    limit = 16_000
    model = Model(Path("model"), "GraphDef", Graph(), {})
    model.variables = {"one": ArrayTensor(np.zeros(1000, np.uint8))}
    assert largest_share(limit, model) == 1000
    model.variables = {str(index): ArrayTensor(np.zeros(100 + index, np.uint8)) for index in range(100)}
    share = largest_share(limit, model)
    assert sum(100 + key for key in range(100) if 100 + key < share) <= limit // 4 < 14_950
    model.variables, keys = {}, ArrayTensor(np.zeros(70, np.int64))
    model.hash_tables = {"table": HashTableContent(keys, None)}
    # TensorFlow needs many times the keys to hold them.
    assert largest_share(limit, model) < 8 * byte_size(keys)
