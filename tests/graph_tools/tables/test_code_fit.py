# SPDX-License-Identifier: Apache-2.0
"""Fitted rows are those of weighted least squares."""

from __future__ import annotations

import numpy as np
import pytest

from graph_tools.tables.code_fit import fit
from graph_tools.tables.row_codes import BinaryCode
from graph_tools.tensors import Array

CODE = BinaryCode(9, 3)
KEYS = np.arange(200)


def sums(rows: Array, keys: Array = KEYS) -> Array:
    total: Array = sum(rows[place + offset] for place, offset in zip(CODE.places(keys), CODE.offsets, strict=True))
    return total


def test_rows_that_are_sums_are_found() -> None:
    true = np.random.default_rng(0).normal(size=(24, 5)).astype(np.float32)
    found = fit(CODE, KEYS, sums(true))
    assert found.error < 1e-6
    np.testing.assert_allclose(sums(found.rows), sums(true), atol=5e-3)


@pytest.mark.parametrize("weighted", [False, True])
def test_fit_equals_least_squares(weighted: bool) -> None:
    random = np.random.default_rng(1)
    rows = random.normal(size=(200, 4)).astype(np.float32)
    weights = random.lognormal(0, 2, 200).astype(np.float32) if weighted else None
    found = fit(CODE, KEYS, rows, weights)
    matrix = np.zeros((200, 24))
    for place, offset in zip(CODE.places(KEYS), CODE.offsets, strict=True):
        matrix[KEYS, place + offset] = 1
    root = np.sqrt(np.ones(200) if weights is None else weights)[:, None]
    best = np.linalg.lstsq(matrix * root, rows * root, rcond=None)[0]
    np.testing.assert_allclose(sums(found.rows), matrix @ best, atol=0.02)
    expected = (np.square(rows - matrix @ best) * root**2).sum() / (np.square(rows) * root**2).sum()
    assert found.error == pytest.approx(expected, rel=1e-3)


def test_frequent_keys_lose_less() -> None:
    random = np.random.default_rng(2)
    rows, weights = random.normal(size=(200, 4)).astype(np.float32), np.ones(200, np.float32)
    weights[:10] = 1000

    def lost(weights: Array | None) -> float:
        return float(np.square(rows - sums(fit(CODE, KEYS, rows, weights).rows))[:10].mean())

    assert lost(weights) < 0.1 * lost(None)


def test_tables_without_rows_or_with_zeros_give_zeros() -> None:
    for count in (0, 200):
        found = fit(CODE, KEYS[:count], np.zeros((count, 3), np.float32))
        assert (found.rows.shape, found.error, found.rows.any()) == ((24, 3), 0.0, False)
