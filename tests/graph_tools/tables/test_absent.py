# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph_tools.tables.absent import AbsentPolicy, absent_policy
from helpers.models.sparse_table_models import NAME, lookup_model, make_table

DIM = 3
ONES = np.ones(DIM, np.float32)


def policy(absent: np.ndarray | None, default: Any = None, lookups: int = 1) -> AbsentPolicy:
    table = make_table(np.arange(4), np.ones((4, DIM), np.float32), absent)
    return absent_policy(lookup_model(table, default=default, lookups=lookups).graph, NAME, table)


@pytest.mark.parametrize(
    ("absent", "kind", "rows"),
    [
        (None, "zero", 0),
        (np.zeros((9, DIM), np.float32), "zero", 0),
        (np.ones((9, DIM), np.float32), "row", 1),
        (np.arange(9, dtype=np.float32).reshape(3, DIM), "modulo", 3),
    ],
)
def test_default_matrix_is_as_simple_as_its_rows(absent: np.ndarray | None, kind: str, rows: int) -> None:
    found = policy(absent)
    assert found.unanimous
    assert found.absent.kind == kind
    assert (0 if found.absent.rows is None else len(found.absent.rows)) == rows
    assert found.absent.source == "the test"


@pytest.mark.parametrize("default", [ONES, ONES[None], np.ones((4, 2, DIM), np.float32), np.float32(1)])
def test_constant_second_input_is_the_absent_value(default: Any) -> None:
    found = policy(None, default)
    assert found.unanimous
    assert found.absent.rows is not None
    np.testing.assert_array_equal(found.absent.rows, [ONES])
    assert "second input of 'lookup'" in found.absent.source


@pytest.mark.parametrize("default", ["fed", np.arange(2 * DIM).reshape(2, DIM)])
def test_second_input_of_many_rows_stays_one(default: Any) -> None:
    found = policy(None, default)
    assert not found.unanimous
    assert found.by_input == {"lookup"}


def test_lookups_that_differ_do_not_agree() -> None:
    found = policy(None, ONES, lookups=2)
    assert found.by_input == {"lookup"}
    assert found.absent.kind == "zero"
