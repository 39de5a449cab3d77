# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from graph_tools.tables.bits import Bits
from graph_tools.tables.blocks import TableRows, of_variable
from graph_tools.tables.duplicates import HashSample, row_hashes, share_rows
from graph_tools.tensors import ArrayTensor


def whole(source: TableRows) -> Bits:
    bits = Bits(source.count)
    bits.set(0, np.ones(source.count, bool))
    return bits


def test_rows_of_one_number_have_different_hashes() -> None:
    rows = np.repeat(np.linspace(-4, 4, 10001, dtype=np.float32)[:, None], 4, axis=1)
    assert len(np.unique(row_hashes(rows))) == 10001


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("dim", [1, 3, 8])
def test_rows_have_one_hash_where_they_are_equal(dtype: type, dim: int) -> None:
    # Numbers with few bits, as quantized training leaves them.
    rows = np.random.default_rng(0).integers(-8, 8, (4000, dim)).astype(dtype)
    hashes = row_hashes(rows)
    distinct = np.unique(rows.astype(np.float64), axis=0)
    assert len(np.unique(hashes)) == len(distinct)
    np.testing.assert_array_equal(row_hashes(rows[::-1])[::-1], hashes)


def test_sample_tells_the_share_of_duplicates() -> None:
    rows = np.random.default_rng(1).integers(0, 1 << 20, (50000, 4)).astype(np.float32)
    rows[25000:] = rows[:25000]
    full, part = HashSample(50000, 1 << 20), HashSample(50000, 1 << 14)
    for begin in range(0, 50000, 7000):
        for sample in (full, part):
            sample.add(row_hashes(rows[begin : begin + 7000]))
    assert full.complete
    assert full.duplicates() == 25000
    assert not part.complete
    assert len(part.hashes()) < 5000
    assert abs(part.duplicates() - 25000) < 2500


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_equal_rows_become_one(block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(2)
    rows = random.normal(size=(20, 5)).astype(np.float32)[random.integers(0, 20, 1000)]
    source = of_variable("v", ArrayTensor(rows))
    monkeypatch.setattr(TableRows, "block_rows", lambda self, limit=0: 64 if block_bytes == 1 else 10000)
    given = Bits(1000)
    given.set(0, np.arange(1000) % 3 > 0)
    mine = rows[given.get(0, 1000)]
    shared = share_rows(source, given, row_hashes(mine), 1 << 20)
    stored = rows[shared.first.get(0, 1000)]
    assert len(stored) == 20
    np.testing.assert_array_equal(stored[shared.target], mine)


def test_rows_that_only_share_a_hash_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(3).integers(0, 3, (500, 4)).astype(np.float32)
    source = of_variable("v", ArrayTensor(rows))
    shared = share_rows(source, whole(source), rows[:, 0].astype(np.uint64), 1 << 20)
    np.testing.assert_array_equal(rows[shared.first.get(0, 500)][shared.target], rows)


def test_groups_beyond_the_memory_are_not_shared() -> None:
    rows = np.repeat(np.arange(100, dtype=np.float32), 10).reshape(-1, 1) @ np.ones((1, 4), np.float32)
    rows = np.concatenate([rows, np.full((500, 4), -1, np.float32)])
    source = of_variable("v", ArrayTensor(rows))
    shared = share_rows(source, whole(source), row_hashes(rows), 16 * 11)
    np.testing.assert_array_equal(rows[shared.first.get(0, 1500)][shared.target], rows)
    # The largest group is among those that are.
    assert shared.first.count == 1500 - 499 - 10 * 9


def test_hashes_of_floats_differ_in_their_low_bits() -> None:
    # A product modulo 2^64 alone would leave the low bits of such numbers zero.
    hashes = row_hashes(np.arange(1, 4097, dtype=np.float32).reshape(-1, 1) * np.ones((1, 2), np.float32))
    counts = np.bincount((hashes & np.uint64(15)).astype(int), minlength=16)
    assert counts.min() > 150
