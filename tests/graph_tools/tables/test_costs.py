# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from graph_tools.tables.costs import Counts, Layout, layouts, stored_rows, table_bytes

# A thousand keys between 0 and 1,999, 300 of them with rows of zeros and the others with 200 different rows.
COUNTS = Counts(
    kept=1000, own=700, distinct=200, span=2000, key_bytes=8000, absent=1, dim=16, dtype=np.dtype(np.float32)
)


@pytest.mark.parametrize(
    ("layout", "row_type", "rows", "expected"),
    [
        (Layout("direct"), "fp32", 2000, 2001 * 64),
        (Layout("remap"), "fp32", 1000, 2001 * 4 + 1001 * 64),
        (Layout("remap", "zero"), "fp32", 701, 2001 * 4 + 702 * 64),
        (Layout("remap", "equal"), "int8", 201, 2001 * 4 + 202 * 20),
        (Layout("hashed"), "fp32", 1000, 8000 + 1001 * 64),
        (Layout("hashed", "zero"), "bf16", 701, 8000 + 702 * 32),
        (Layout("hashed", "equal"), "int4", 201, 8000 + 4000 + 202 * 12),
    ],
)
def test_bytes_of_a_layout(layout: Layout, row_type: str, rows: int, expected: int) -> None:
    assert stored_rows(layout, COUNTS) == rows
    assert table_bytes(layout, COUNTS, row_type) == expected


def names(found: list[Layout]) -> set[tuple[str, str]]:
    return {(layout.name, layout.share) for layout in found}


def test_layouts_that_a_sparse_table_may_have() -> None:
    found = layouts(COUNTS, plain=False, direct=True, indexed=True, gaps=True)
    assert names(found) == {
        ("direct", "none"), ("remap", "none"), ("remap", "zero"), ("remap", "equal"), ("hashed", "zero"),
        ("hashed", "equal"),
    }  # fmt: skip
    assert names(layouts(COUNTS, plain=False, direct=False, indexed=False, gaps=True)) == {
        ("hashed", "zero"),
        ("hashed", "equal"),
    }


def test_gaps_are_not_filled_if_absent_keys_must_be_distinguished() -> None:
    assert ("direct", "none") not in names(layouts(COUNTS, plain=False, direct=True, indexed=True, gaps=False))
    dense = dataclasses.replace(COUNTS, span=1000)
    assert ("direct", "none") in names(layouts(dense, plain=False, direct=True, indexed=True, gaps=False))


def test_layouts_that_a_variable_may_have() -> None:
    plain = dataclasses.replace(COUNTS, absent=0, kept=2000, own=1700)
    assert names(layouts(plain, plain=True, direct=True, indexed=True, gaps=True)) == {
        ("direct", "none"),
        ("remap", "zero"),
        ("remap", "equal"),
    }


def test_table_without_keys_is_its_absent_rows() -> None:
    empty = dataclasses.replace(COUNTS, kept=0, own=0, distinct=0, span=0, key_bytes=0, absent=7)
    assert layouts(empty, plain=False, direct=True, indexed=True, gaps=True) == [Layout("none")]
    assert table_bytes(Layout("none"), empty, "fp32") == 7 * 64
