# SPDX-License-Identifier: Apache-2.0
"""Test reading some rows of tensors of any kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.bundle import BundleReader, BundleWriter
from graph_tools.tensors import ArrayTensor, Concatenated, StreamTensor, TensorSource, rows_between, split_rows

ROWS = np.arange(60, dtype=np.float32).reshape(20, 3)


def _stored(folder: Path) -> TensorSource:
    with BundleWriter(folder / "model") as bundle:
        bundle.add("before", ArrayTensor(np.arange(5)))
        bundle.add("rows", ArrayTensor(ROWS))
        bundle.finish()
    return BundleReader(folder / "model").tensor("rows")


def _streamed() -> TensorSource:
    def make(rows: int) -> Iterator[np.ndarray[Any, Any]]:
        for begin in range(0, 20, min(rows, 7)):
            yield ROWS[begin : begin + min(rows, 7)]

    return StreamTensor(ROWS.dtype, ROWS.shape, make)


@pytest.mark.parametrize(("begin", "end"), [(0, 20), (0, 1), (6, 8), (7, 14), (19, 20), (4, 4)])
def test_rows_by_number(tmp_path: Path, begin: int, end: int) -> None:
    halves = Concatenated([ArrayTensor(ROWS[:9]), ArrayTensor(ROWS[9:])])
    for tensor in (ArrayTensor(ROWS), _stored(tmp_path), _streamed(), halves):
        found = rows_between(tensor, begin, end)
        assert found.dtype == ROWS.dtype
        np.testing.assert_array_equal(found, ROWS[begin:end])


def test_split_arrays_are_never_larger_nor_empty() -> None:
    found = list(split_rows([np.arange(5), np.arange(0), np.arange(2)], 2))
    assert [len(array) for array in found] == [2, 2, 1, 2]
