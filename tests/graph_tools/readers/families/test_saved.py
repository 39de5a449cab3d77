# SPDX-License-Identifier: Apache-2.0
"""Test reading ranges of rows of saved tensors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_tools.errors import ConversionError
from graph_tools.graph import Graph
from graph_tools.readers.families.saved import row_length, rows_in_ranges
from graph_tools.tensors import ArrayTensor


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12), st.sets(st.integers(0, 11)), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_ranges_come_in_order_whatever_the_blocks(lengths: list[int], chosen: set[int], rows: int) -> None:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    whole = np.arange(offsets[-1] * 2).reshape(-1, 2)
    numbers = [i for i in sorted(chosen) if i < len(lengths) and lengths[i]]
    ranges = [(int(offsets[i]), int(offsets[i + 1])) for i in numbers]
    found = rows_in_ranges(ArrayTensor(whole), ranges)
    expected = np.concatenate([whole[:0], *(whole[begin:end] for begin, end in ranges)])
    assert found.shape == expected.shape
    blocks = list(found.chunks(rows))
    assert all(len(block) <= rows for block in blocks)
    np.testing.assert_array_equal(np.concatenate([whole[:0], *blocks]), expected)


@pytest.mark.parametrize("shape", [(None,), (2, 3), ()])
def test_rows_must_be_of_one_known_length(shape: tuple[int | None, ...]) -> None:
    handle = Graph().add("KvVarHandleOp", name="emb", attrs={"shape": shape})
    with pytest.raises(ConversionError, match=r"table 'emb': rows of shape .*, expected one axis of known length"):
        row_length(handle, "shape")
