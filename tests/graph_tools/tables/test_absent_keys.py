# SPDX-License-Identifier: Apache-2.0
"""Test absent values that the user chooses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import UsageError
from graph_tools.readers import read_model
from graph_tools.tables.absent_keys import base_name, is_set, requested_value
from load_tests.workloads.sparse_exports import Export, tfplus_lookup, tfplus_table

KEYS = np.array([3, 7], np.int64)
ROWS = np.array([[1, 2], [3, 4]], np.float32)


def build(path: Path, keys: np.ndarray = KEYS, asked: str = "int64") -> Path:
    export = Export()
    handle = tfplus_table(export, "emb", keys, ROWS)
    return export.finish(path / "model", [tfplus_lookup(export, handle, export.input("item", asked), tkeys=asked)], 2)


@pytest.mark.parametrize("value", ["", "zeros", "row", "row:", "3"])
def test_an_unknown_rule_for_absent_keys_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(UsageError, match=f"--absent-key emb={value}: '{value}', expected zero, row:K or default"):
        read_model(build(tmp_path), absent_key={"emb": value})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("row:4", "key 4 is not in the table, expected one that is"),
        ("row:abc", "key 'abc', expected one of type int64"),
        (f"row:{2**63}", "expected one of type int64"),
    ],
)
def test_the_row_of_an_absent_key_is_refused(tmp_path: Path, value: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_model(build(tmp_path), absent_key={"emb": value})


def test_row_of_a_string_key(tmp_path: Path) -> None:
    path = build(tmp_path, np.array([b"none", b"a"], object), "string")
    absent = read_model(path, absent_key={"emb": "row:none"}).sparse_tables["emb"].absent
    assert absent.rows is not None
    assert absent.rows.tolist() == [[1.0, 2.0]]
    assert absent.source == "--absent-key emb=row:none"


def test_rules_are_patterns_and_the_last_match_counts() -> None:
    rules = {"*": "zero", "item*": "row:1", "item": "default"}
    assert [requested_value(rules, name) for name in ("user", "item_emb", "item")] == ["zero", "row:1", "default"]
    assert [is_set(rules, name) for name in ("user", "item_emb", "item")] == [True, True, False]


def test_part_goes_by_the_name_of_its_table() -> None:
    assert base_name("scope/emb/part_12") == "scope/emb"
    assert base_name("part_1") == "part_1"
    assert requested_value({"emb": "zero"}, "emb/part_1") == "zero"
    assert requested_value({"emb/part_0": "zero"}, "emb/part_1") is None
