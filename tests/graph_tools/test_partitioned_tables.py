# SPDX-License-Identifier: Apache-2.0
"""Test that partitioned tables become one table, with the absent value that the user chose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.errors import UsageError
from graph_tools.options import CutOptions
from graph_tools.verbs.cut import cut
from graph_tools.verbs.fuse import optimize
from helpers.graph_tools.stock_answers import answers
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
    return lambda keys: deeprec_lookup(export, handle, keys)


def tfplus(export: Export, part: int, keys: np.ndarray, rows: np.ndarray) -> Callable[[str], str]:
    handle = tfplus_table(export, f"emb/part_{part}", keys, rows, slots=["m"])
    return lambda keys: tfplus_lookup(export, handle, keys)


def tfra(export: Export, part: int, keys: np.ndarray, rows: np.ndarray) -> Callable[[str], str]:
    handle = tfra_table(export, "emb", keys, rows, (part, PARTS))
    default = export.const(np.full(2, 0.5, np.float32))
    return lambda keys: tfra_lookup(export, handle, keys, default)


FAMILIES = pytest.mark.parametrize("family", [deeprec, tfplus, tfra])


def write(path: Path, family: Any) -> Path:
    """Two parts: a key is in part `key % 2`."""
    export = Export()
    shards = []
    for part in range(PARTS):
        mine = part == KEYS % PARTS
        shards.append(family(export, part, KEYS[mine], ROWS[mine]))
    return export.finish(path / "model", [partitioned(export, export.input("item"), shards)], 2)


@FAMILIES
@pytest.mark.parametrize(
    ("pattern", "rule", "row"),
    [
        ("emb", "zero", 0.0),
        ("emb*", "row:7", ROWS[2]),
        ("*", "row:1000", ROWS[1]),
        ("emb/part_*", "row:7", ROWS[2]),
    ],
)
def test_absent_key_of_a_table_in_parts(tmp_path: Path, family: Any, pattern: str, rule: str, row: Any) -> None:
    source = write(tmp_path, family)
    report = cut(source, tmp_path / "cut", options=CutOptions(absent_key={pattern: rule}))
    (table,) = report.tables
    assert table.name == "emb"
    assert table.absent.kind == ("zero" if rule == "zero" else "row")
    assert table.absent.source.startswith("--absent-key emb")
    expected = rows_for(ASKED, KEYS, ROWS, lambda _: row)
    np.testing.assert_array_equal(answers(tmp_path / "cut", {"item": ASKED})["rows"], expected)


@FAMILIES
def test_absent_key_option_for_an_unknown_table_is_refused(tmp_path: Path, family: Any) -> None:
    source = write(tmp_path, family)
    with pytest.raises(UsageError, match=r"--absent-key user: no table of this name"):
        cut(source, tmp_path / "cut", options=CutOptions(absent_key={"user": "zero"}))
    with pytest.raises(UsageError, match=r"--absent-key emb=row:8: key 8 is not in the table"):
        cut(source, tmp_path / "cut", options=CutOptions(absent_key={"emb": "row:8"}))
    assert not (tmp_path / "cut").exists()


@FAMILIES
def test_removed_tensors_are_those_that_no_part_is_made_from(tmp_path: Path, family: Any) -> None:
    report = cut(write(tmp_path, family), None, dry_run=True)
    gone = {tensor.name: tensor.reason for tensor in report.removed.tensors}
    assert not [name for name in gone if name.endswith(("emb/part_0-keys", "emb/part_1-values", "of2-keys"))]
    for slot in {"deeprec": ["Adagrad"], "tfplus": ["m"]}.get(family.__name__, []):
        for part in range(PARTS):
            assert gone[f"emb/part_{part}/{slot}-values"].startswith("optimizer slot of 'emb/part_")
    (table,) = report.tables
    dropped = {dropped_tensor.name for dropped_tensor in table.dropped_tensors}
    if family is not tfra:
        assert {name.split("/")[1].split("-")[0] for name in dropped} == {"part_0", "part_1"}


@FAMILIES
def test_tensors_of_a_table_that_no_output_needs_are_listed(tmp_path: Path, family: Any) -> None:
    export = Export()
    ids = export.input("item")
    wanted, other = (family(export, 0, KEYS, ROWS)(ids), "")
    if family is deeprec:
        other = deeprec_lookup(export, deeprec_table(export, "other", KEYS, ROWS), ids)
    elif family is tfplus:
        other = tfplus_lookup(export, tfplus_table(export, "other", KEYS, ROWS), ids)
    else:
        zeros = export.const(np.zeros(2, np.float32))
        other = tfra_lookup(export, tfra_table(export, "other", KEYS, ROWS), ids, zeros)
    export.node("Identity", [other], "unwanted", T="float32")
    path = export.finish(tmp_path / "model", [wanted], 2)
    gone = {tensor.name for tensor in cut(path, None, dry_run=True).removed.tensors}
    assert {name for name in gone if "other" in name and name.endswith(("-keys", "-values"))} == {
        f"{stem}-{part}" for stem in ["other_mht_1of1" if family is tfra else "other"] for part in ("keys", "values")
    }


def test_dropped_rows_are_listed_by_reason(tmp_path: Path) -> None:
    rows = ROWS.copy()
    rows[0] = 0
    export = Export()
    shards = []
    for part in range(PARTS):
        mine = part == KEYS % PARTS
        if part == 0:
            mine |= KEYS == 2001  # a request for it goes to part 1
        held = {"filtered": np.array([1000], np.int64)} if part == 0 else {}
        handle = deeprec_table(export, f"emb/part_{part}", KEYS[mine], rows[mine], partition=(part, PARTS), **held)
        shards.append(lambda keys, handle=handle: deeprec_lookup(export, handle, keys))
    path = export.finish(tmp_path / "model", [partitioned(export, export.input("item"), shards)], 2)
    report = cut(path, tmp_path / "cut")
    classes = {row.class_: (row.table, row.rows, row.reason) for row in report.removed.rows}
    assert classes["misplaced"] == ("emb", 1, "in a part that no request for the key is sent to")
    assert classes["zero"] == ("emb", 1, "zeros, which an absent key is given as well")
    (table,) = report.tables
    assert table.keys - sum(table.dropped.values()) == table.kept_keys
    expected = rows_for(ASKED, KEYS, rows)
    np.testing.assert_array_equal(answers(tmp_path / "cut", {"item": ASKED})["rows"], expected)


def test_rows_that_are_stored_once_are_listed(tmp_path: Path) -> None:
    rows = np.zeros((3000, 8), np.float32)
    rows[:100] = np.arange(800).reshape(100, 8)
    export = Export()
    keys = np.arange(3000, dtype=np.int64) * 1_000_003
    handle = deeprec_table(export, "emb", keys, rows, default=np.ones((4, 8), np.float32))
    path = export.finish(tmp_path / "model", [deeprec_lookup(export, handle, export.input("item"))], 8)
    (one,) = cut(path, None, dry_run=True).removed.rows
    assert one.class_ == "shared"
    assert one.rows == 2899


@FAMILIES
def test_parts_of_a_live_model_change_under_their_own_names(tmp_path: Path, family: Any) -> None:
    report = optimize(write(tmp_path, family), tmp_path / "out", live=True, precision="fp32")
    assert report.live is not None
    assert sorted(table.source for table in report.live.tables) == ["emb/part_0", "emb/part_1"]
    assert {table.key_kind for table in report.live.tables} == {"int64"}
