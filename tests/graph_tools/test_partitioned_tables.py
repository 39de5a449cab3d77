# SPDX-License-Identifier: Apache-2.0
"""Tables in parts become one: what the user says of it, what goes, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_tools_support import answers

from graph_tools.cutting import cut
from graph_tools.errors import UsageError
from graph_tools.options import CutOptions
from load_tests.workloads.sparse_exports import (
    Export,
    deeprec_lookup,
    deeprec_table,
    partitioned,
    rows_for,
    tfplus_lookup,
    tfplus_table,
    tfra_lookup,
    tfra_table,
)

KEYS = np.array([3, 1000, 7, 2, 123456789012345, 2001], np.int64)
ROWS = np.arange(1, 13, dtype=np.float32).reshape(6, 2) / 8
ASKED = np.array([7, 8, 123456789012345, 2001, 0, 3, 7, -5], np.int64)
PARTS = 2


def deeprec(export: Export, part: int, keys: np.ndarray, rows: np.ndarray) -> Callable[[str], str]:
    handle = deeprec_table(export, f"emb/part_{part}", keys, rows, slots=["Adagrad"], partition=(part, PARTS))
    return lambda some: deeprec_lookup(export, handle, some)


def tfplus(export: Export, part: int, keys: np.ndarray, rows: np.ndarray) -> Callable[[str], str]:
    handle = tfplus_table(export, f"emb/part_{part}", keys, rows, slots=["m"])
    return lambda some: tfplus_lookup(export, handle, some)


def tfra(export: Export, part: int, keys: np.ndarray, rows: np.ndarray) -> Callable[[str], str]:
    handle = tfra_table(export, "emb", keys, rows, (part, PARTS))
    default = export.const(np.full(2, 0.5, np.float32))
    return lambda some: tfra_lookup(export, handle, some, default)


FAMILIES = pytest.mark.parametrize("family", [deeprec, tfplus, tfra])


def write(path: Path, family: Any, misplaced: bool = False) -> Path:
    """Two parts, key % 2; `misplaced` puts key 2001 into part 0 as well as its own."""
    export = Export()
    shards = []
    for part in range(PARTS):
        mine = KEYS % PARTS == part
        if misplaced and part == 0:
            mine |= KEYS == 2001
        shards.append(family(export, part, KEYS[mine], ROWS[mine]))
    return export.finish(path / "model", [partitioned(export, export.input("item"), shards)], 2)


@FAMILIES
@pytest.mark.parametrize("pattern", ["emb", "emb*", "*", "emb/part_*"])
@pytest.mark.parametrize(("rule", "row"), [("zero", 0.0), ("row:7", ROWS[2]), ("row:1000", ROWS[1])])
def test_absent_key_of_a_table_in_parts(tmp_path: Path, family: Any, pattern: str, rule: str, row: Any) -> None:
    source = write(tmp_path, family)
    report = cut(source, tmp_path / "cut", options=CutOptions(absent_key={pattern: rule}))
    (table,) = report.tables
    assert table["name"] == "emb"
    assert table["absent"]["kind"] == ("zero" if rule == "zero" else "row")
    assert table["absent"]["source"].startswith("--absent-key emb")
    expected = rows_for(ASKED, KEYS, ROWS, lambda _: row)
    np.testing.assert_array_equal(answers(tmp_path / "cut", {"item": ASKED})["rows"], expected)


@FAMILIES
def test_absent_key_of_what_is_no_table_is_refused(tmp_path: Path, family: Any) -> None:
    source = write(tmp_path, family)
    with pytest.raises(UsageError, match=r"--absent-key user: no table of this name"):
        cut(source, tmp_path / "cut", options=CutOptions(absent_key={"user": "zero"}))
    with pytest.raises(UsageError, match=r"--absent-key emb=row:8: key 8 is not in the table"):
        cut(source, tmp_path / "cut", options=CutOptions(absent_key={"emb": "row:8"}))
    assert not (tmp_path / "cut").exists()
