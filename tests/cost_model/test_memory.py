# SPDX-License-Identifier: Apache-2.0
"""Test the memory of models in plans against the rules by which hosts load them (test_memory_budget.cc)."""

from __future__ import annotations

import copy
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from cost_model.errors import WorkloadError
from cost_model.planning import plan, plan_addition
from cost_model.planning.report import plan_report
from cost_model.workload import parse_workload

MODEL: dict[str, Any] = {
    "fixed_us": 10, "per_row_us": 1, "cv": 0.3, "rows": {"constant": 5}, "slo_p99_ms": 5, "qps": 10,
}  # fmt: skip


def _artifact(folder: Path, name: str, own: int, tables: dict[str, int], index: int = 0) -> Path:
    """Write files with the sizes of a model; table files have a header with the bytes of their index."""
    (folder / name / "assets").mkdir(parents=True)
    (folder / name / "saved_model.pb").write_bytes(bytes(own))
    for letter, size in tables.items():
        header = bytearray(size)
        header[:8] = b"RECEMB\r\n"
        struct.pack_into("<Q", header, 112, index)
        (folder / name / "assets" / f"{letter * 64}.emb").write_bytes(header)
    return folder / name


def _planned(folder: Path, *models: dict[str, Any], memory_gb: float = 1.0) -> Any:
    entries = [
        copy.deepcopy(MODEL) | {"name": f"m{i}", "role": "variant" if i else "baseline"} | model
        for i, model in enumerate(models)
    ]
    data = {"machine": {"cores": 4, "memory_gb": memory_gb}, "models": entries}
    return plan(parse_workload(data, folder=folder))


def test_tiered_tables_count_as_on_hosts(tmp_path: Path) -> None:
    _artifact(tmp_path, "model", 10, {"a": 9000, "b": 1000}, index=100)
    tiered = {"artifact": "model", "tables": {"tier": "tiered", "memory": "2KB"}}
    larger = {"artifact": "model", "tables": {"tier": "tiered", "memory": 4000}}
    ample = {"artifact": "model", "tables": {"tier": "tiered", "memory": "100KB"}}
    made = _planned(tmp_path, tiered, tiered, larger, ample, {"artifact": "model"})
    assert made.memory.models == {"m0": 2010, "m1": 10, "m2": 4010, "m3": 10010, "m4": 10010}
    assert made.memory.used == sum(made.memory.models.values())
    assert made.memory.limit == 900_000_000
    assert made.feasible
    assert plan_report(made).to_json()["memory"] == {
        "limit_bytes": 900_000_000, "used_bytes": made.memory.used, "models": made.memory.models,
    }  # fmt: skip


def test_tables_are_shared_by_content_and_files_by_name(tmp_path: Path) -> None:
    _artifact(tmp_path, "one", 30, {"a": 9000})
    _artifact(tmp_path, "two", 50, {"a": 9000, "b": 500})
    os.truncate(tmp_path / "two" / "assets" / f"{'b' * 64}.emb", 500)
    made = _planned(tmp_path, {"artifact": "one"}, {"artifact": "two"})
    assert made.memory.models == {"m0": 9030, "m1": 550}
    files = {"tables": {"files": {"users": "500MB", "items": "1MB"}}}
    resident = {"tables": {"tier": "resident", "files": {"users": 1}}}
    made = _planned(tmp_path, files, files, resident)
    assert made.memory.models == {"m0": 501_000_000, "m1": 0, "m2": 2 << 20}


def test_a_model_that_does_not_fit_is_named(tmp_path: Path) -> None:
    users, items = ({"tables": {"files": {name: "500MB"}}} for name in ("users", "items"))
    made = _planned(tmp_path, users, items)
    assert not made.feasible
    expected = "m1: 0.5 GB of memory to be loaded beside 0.5 GB, expected at most 0.9 GB in all"
    assert made.reasons[-1] == expected
    before = _planned(tmp_path, users)
    added = plan_addition(before, made.workload.model("m1"), 10)
    assert (added.verdict, expected in added.sentence) == ("does_not_fit", True)
    assert _planned(tmp_path, users, items, memory_gb=0).feasible


def test_without_tables_nothing_is_said(tmp_path: Path) -> None:
    made = _planned(tmp_path, {}, {})
    assert made.memory is None
    assert "memory" not in plan_report(made).to_json()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"artifact": "none"}, "artifact: .*none found, expected the folder of a SavedModel"),
        ({"artifact": "model", "tables": {"tier": "tiered"}}, "memory: nothing found"),
        ({"artifact": "model", "tables": {"tier": "mapped", "memory": "4GB"}}, "a memory of mapped tables found"),
        ({"artifact": "model", "tables": {"tier": "tiered", "memory": "4 GB"}}, "'4 GB' found, expected a size"),
        ({"artifact": "model", "tables": {"tier": "tiered", "memory": 100}}, "100 bytes found, expected more than 100"),
        ({"artifact": "model", "tables": {"tier": "cold"}}, "'cold' found"),
        ({"artifact": "model", "tables": {"files": {"a": 1}}}, "both files and an artifact"),
        ({"tables": {"tier": "mapped"}}, "both files and an artifact, or neither"),
        ({"artifact": "odd", "tables": {"tier": "mapped"}}, "not a table file found"),
    ],
)
def test_wrong_members_are_refused(tmp_path: Path, model: dict[str, Any], message: str) -> None:
    _artifact(tmp_path, "model", 10, {"a": 9000}, index=100)
    _artifact(tmp_path, "odd", 10, {})
    (tmp_path / "odd" / "assets" / "x.emb").write_bytes(b"other")
    with pytest.raises(WorkloadError, match=message):
        _planned(tmp_path, model)
