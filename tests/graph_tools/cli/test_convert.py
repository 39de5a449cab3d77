# SPDX-License-Identifier: Apache-2.0
"""Test `graph-tools convert` as users see it."""

from __future__ import annotations

import json
from pathlib import Path

from helpers.graph_tools.cut_models import run
from helpers.models import sparse_files


def test_tables_are_shown_and_listed(tmp_path: Path) -> None:
    for name in ("user", "item"):
        sparse_files.write_hps(tmp_path / "in" / name, [1, 2], [[0.5] * 4] * 2)
    found = run("convert", tmp_path / "in", tmp_path / "out", "--report", tmp_path / "report.json")
    assert (found.code, found.err) == (0, "")
    lines = [line.split() for line in found.out.splitlines()]
    assert ["user", "hps", "int64", "2", "4"] in [line[:5] for line in lines]
    assert lines[-1] == ["written", "to", str(tmp_path / "out")]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report == json.loads((tmp_path / "out" / "tables.json").read_text())


def test_json_of_some_tables(tmp_path: Path) -> None:
    for name in ("user", "item"):
        sparse_files.write_hps(tmp_path / "in" / name, [1], [[0.5]])
    found = run("convert", tmp_path / "in", tmp_path / "out", "--table", "u*", "--json")
    assert [table["name"] for table in json.loads(found.out)["tables"]] == ["user"]


def test_exit_code_of_bad_input(tmp_path: Path) -> None:
    found = run("convert", tmp_path, tmp_path.parent / "out")
    assert (found.code, found.out) == (2, "")
    assert "neither a SavedModel nor table files in it" in " ".join(found.err.split())
