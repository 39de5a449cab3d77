# SPDX-License-Identifier: Apache-2.0
"""Rows that end in zeros are found where that saves a quarter of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graph_tools.store import QuantisedRows, TableSpec
from graph_tools.store.row_runs import NarrowRows
from graph_tools.tables.mixed_dims import RowWidth, mix_dims
from graph_tools.tables.narrow_rows import find_narrow_rows
from graph_tools.tensors import ArrayTensor, StreamTensor
from helpers.models.embedding_tables import streamed


def _rows(*runs: tuple[int, int], dim: int = 32) -> np.ndarray:
    """Return rows of ones, of which each run (count, width) has its first elements."""
    rows = np.ones((sum(count for count, _ in runs), dim), np.float32)
    begin = 0
    for count, width in runs:
        rows[begin : begin + count, width:] = 0
        begin += count
    return rows


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([(100, 32), (900, 8)], [(100, 8)]),
        ([(100, 32), (300, 16), (600, 4)], [(100, 16), (400, 4)]),
        ([(1000, 8)], [(0, 8)]),
        # Five widths are too many: the one that saves least is stored wider.
        ([(200, 32), (200, 24), (200, 16), (10, 10), (200, 8), (200, 4)], [(200, 24), (400, 16), (610, 8), (810, 4)]),
        # A zero row in front and a wide row near the end change little.
        ([(5, 0), (95, 32), (400, 8), (1, 32), (500, 8)], [(501, 8)]),
        ([(100, 8), (900, 32)], []),
        ([(900, 32), (100, 8)], []),
        ([(40, 4)], []),
    ],
)
def test_widths_are_found(runs: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    rows = _rows(*runs)
    spec = TableSpec(32, streamed(len(rows), 32, lambda begin, end: rows[begin:end]))
    narrow = [NarrowRows(*each) for each in expected]
    assert list(find_narrow_rows(spec)) == narrow
    halves = replace(spec, rows=ArrayTensor(rows.astype(np.float16)), row_type="fp16")
    assert list(find_narrow_rows(halves)) == narrow


def test_quantized_rows_stay_wide() -> None:
    codes = ArrayTensor(np.zeros((1000, 32), np.uint8))
    rows = QuantisedRows(codes, ArrayTensor(np.ones((1000, 2), np.float16)))
    assert find_narrow_rows(TableSpec(32, rows, "int8")) == ()


def test_tables_whose_last_row_is_wide_are_not_read() -> None:
    class Last(StreamTensor):
        def between(self, begin: int, end: int) -> np.ndarray:
            return np.ones((end - begin, 32), np.float32)

    def chunks(_rows: int) -> None:
        raise AssertionError("the rows were read")

    assert find_narrow_rows(TableSpec(32, Last(np.dtype(np.float32), (1000, 32), chunks))) == ()


def test_a_basis_loses_least() -> None:
    """The first columns of the basis are those of the weighted singular value decomposition."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(400, 12)).astype(np.float32) * np.linspace(0.1, 3, 12, dtype=np.float32)
    weights = random.random(400).astype(np.float32) + 0.1
    mixed = mix_dims(rows, weights, [RowWidth(12, 40), RowWidth(5)])
    assert (np.diff(weights[mixed.order]) <= 0).all()
    np.testing.assert_allclose((mixed.rows @ mixed.basis)[:40], rows[mixed.order[:40]], atol=1e-5)
    assert not mixed.rows[40:, 5:].any()
    scaled = rows * np.sqrt(weights)[:, None]
    _, _, directions = np.linalg.svd(scaled.astype(np.float64), full_matrices=False)
    kept = scaled - scaled @ directions[:5].T @ directions[:5]
    lost = np.square(kept[mixed.order[40:]]).sum() / np.square(scaled).sum()
    assert mixed.error == pytest.approx(lost, rel=1e-4)
