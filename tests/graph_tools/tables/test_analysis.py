# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from graph_tools.errors import UnreadableError
from graph_tools.model.stored_table import EVERYTHING, Reach
from graph_tools.model.tables import Absent, SparseTable
from graph_tools.options import CutOptions
from graph_tools.tables.analysis import Analysis, analyze
from graph_tools.tables.blocks import of_sparse_table, of_variable
from graph_tools.tensors import ArrayTensor
from helpers.models.sparse_table_models import make_table

DIM = 5


def look(table: SparseTable, reach: Reach = EVERYTHING, unanimous: bool = True, **options: float) -> Analysis:
    absent = table.absent if unanimous else None
    return analyze(of_sparse_table(table), absent, reach, CutOptions(**options))  # type: ignore[arg-type]


def rows_of(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, DIM)).astype(np.float32)


def test_classes_of_rows_are_found_in_every_part() -> None:
    rows = rows_of(1000)
    rows[::4] = 0
    rows[4] = np.float32(-0.0)
    rows[8] = 1e-30
    found = look(make_table(np.arange(1000) * 5 - 100, rows, parts=7))
    assert (found.rows, found.zero_rows, found.equal_absent) == (1000, 249, 249)
    assert found.dropped == {"equal_absent": 249}
    np.testing.assert_array_equal(found.own.get(0, 1000), rows.any(axis=1))
    assert found.zeros.count == 0
    assert (found.low, found.high, found.ascending) == (-95, 4895, True)
    assert found.key_bytes == 751 * 8
    assert found.largest == np.abs(rows).max()


def test_rows_are_compared_with_the_default_of_their_key() -> None:
    default = rows_of(7, 1)
    keys = np.random.default_rng(2).permutation(1000) - 500
    rows = rows_of(1000)
    rows[:300] = default[keys[:300] % 7]
    rows[300:400] = default[(keys[300:400] + 1) % 7]
    rows[400] = default[keys[400] % 7]
    rows[400, -1] += 1
    rows[500:510] = 0
    found = look(make_table(keys, rows, default))
    assert found.equal_absent == 300
    assert found.dropped == {"equal_absent": 300}
    assert (found.zero_rows, found.zeros.count, found.own.count) == (10, 10, 690)
    assert not found.ascending


def test_rows_equal_to_the_absent_value_stay_if_lookups_disagree() -> None:
    rows = rows_of(100)
    rows[:10] = 0
    found = look(make_table(np.arange(100), rows), unanimous=False)
    assert found.dropped == {}
    assert (found.zeros.count, found.own.count) == (10, 90)


def test_a_dropped_row_is_counted_under_its_first_reason() -> None:
    rows = rows_of(100)
    rows[:50] = 0
    rows[60:70] *= np.float32(1e-6)
    frequencies = ArrayTensor(np.arange(100).astype(np.uint16))
    table = make_table(np.arange(100), rows, ignored=np.arange(40, 45), frequencies=frequencies)
    found = look(table, Reach(5, None), min_norm=1e-3, min_frequency=62)
    assert found.dropped == {"ignored": 5, "dead": 5, "equal_absent": 40, "below_frequency": 12, "below_norm": 8}
    assert (found.below_frequency, found.below_norm, found.shrunk) == (62, 10, 0)
    assert found.kept == 30


def test_small_rows_become_zeros_if_absent_keys_are_not_zero() -> None:
    rows = rows_of(100)
    rows[60:70] *= np.float32(1e-6)
    found = look(make_table(np.arange(100), rows, rows_of(1, 3)), min_norm=1e-3)
    assert found.dropped == {}
    assert (found.shrunk, found.zeros.count, found.own.count) == (10, 10, 90)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_rows_of_any_float_are_understood(dtype: type) -> None:
    rows = rows_of(64).astype(dtype)
    rows[3] = 0
    rows[5] = rows[9]
    found = look(make_table(np.arange(64), rows))
    assert (found.zero_rows, found.duplicates, found.own.count) == (1, 1, 63)


def test_string_keys_are_counted_as_they_are_stored() -> None:
    keys = np.array([b"", b"ab", b"x" * 200], object)
    found = look(make_table(keys, rows_of(3)))
    assert found.key_bytes == 0 + 2 + 200 + 1 + 1 + 2
    assert (found.low, found.high) == (None, None)


def test_unsigned_keys_have_the_range_of_their_bits() -> None:
    keys = np.array([2**64 - 3, 5], np.uint64)
    found = look(make_table(keys, rows_of(2)))
    assert (found.low, found.high) == (-3, 5)


def test_duplicates_are_an_estimate_beyond_the_memory() -> None:
    rows = np.repeat(np.random.default_rng(4).normal(size=(700000, 4)).astype(np.float32), 2, axis=0)
    source = of_variable("v", ArrayTensor(rows))
    found = analyze(source, None, EVERYTHING, CutOptions(memory_limit=64 << 20))
    assert not found.duplicates_exact
    assert abs(found.duplicates / 700000 - 1) < 0.02
    assert analyze(source, None, EVERYTHING, CutOptions()).duplicates == 700000


@pytest.mark.parametrize("dim", [16, 17])
@pytest.mark.parametrize("share", [0.0, 0.004, 0.05])
def test_large_table_is_searched_for_duplicates_where_a_sample_has_some(share: float, dim: int) -> None:
    random = np.random.default_rng(5)
    rows = random.normal(size=(1_200_000, dim)).astype(np.float32)
    again = random.permutation(len(rows))[: int(share * len(rows)) * 2].reshape(2, -1)
    rows[again[0]] = rows[again[1]]
    found = analyze(of_variable("v", ArrayTensor(rows)), None, EVERYTHING, CutOptions())
    assert found.duplicates_exact == (share == 0.05)
    assert found.duplicates_few == (share < 0.01)
    assert (found.hashes is not None) == (share == 0.05)
    expected = int(share * len(rows))
    assert found.duplicates == expected if found.duplicates_exact else abs(found.duplicates - expected) < 2000


def test_large_table_of_rows_of_one_norm_is_searched_whole() -> None:
    rows = np.zeros((1_100_000, 16), np.float32)
    rows[np.arange(len(rows)), np.arange(len(rows)) % 16] = 1.0
    found = analyze(of_variable("v", ArrayTensor(rows)), None, EVERYTHING, CutOptions())
    assert (found.duplicates, found.duplicates_exact) == (len(rows) - 16, True)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, -2e30])
def test_values_that_are_no_weights_are_refused(value: float) -> None:
    rows = rows_of(100)
    rows[77, 3] = value
    with pytest.raises(UnreadableError, match=r"table user/embedding: row 77 \(key b'77'\) has .* in column 3"):
        look(make_table(np.array([b"%d" % index for index in range(100)], object), rows, parts=3))
    with pytest.raises(UnreadableError, match=r"table v: row 77 has .* in column 3, expected finite"):
        analyze(of_variable("v", ArrayTensor(rows)), None, EVERYTHING, CutOptions())


def test_progress_counts_all_bytes() -> None:
    told: list[int] = []
    source = of_variable("v", ArrayTensor(rows_of(1000)))
    analyze(source, None, EVERYTHING, CutOptions(), lambda name, size: told.append(size))
    assert sum(told) == 1000 * DIM * 4


def test_absent_value_without_rows_is_zero() -> None:
    assert Absent(np.zeros((3, DIM)), "").kind == "zero"
