# SPDX-License-Identifier: Apache-2.0
"""Test models of other projects: they are inspected, cut and verified."""

from __future__ import annotations

from pathlib import Path

import pytest

from graph_tools import cut, diff, inspect
from helpers.graph_tools.stock_answers import assert_same_answers, requests_for


@pytest.mark.slow
def test_deepctr_models(deepctr_model: Path, tmp_path: Path) -> None:
    found = inspect(deepctr_model).to_json()
    assert found["models"][0]["kind"] == "SavedModel (TF 2)"
    report = cut(deepctr_model, tmp_path / "cut")
    assert report.target is not None
    assert report.verification is not None
    assert report.verification.passed
    assert report.target.nodes < 0.3 * report.source.nodes
    assert report.saved > 0.66  # Adam's slots and more
    changes = diff(deepctr_model, tmp_path / "cut").to_json()
    assert changes["same_interface"]


@pytest.mark.slow
def test_basic_pitch(basic_pitch_model: Path, tmp_path: Path) -> None:
    found = inspect(basic_pitch_model).to_json()
    assert found["models"][0]["nodes"] > 900
    report = cut(basic_pitch_model, tmp_path / "cut", samples=8)
    assert report.verification is not None
    assert report.verification.passed
    names = {pass_.name for pass_ in report.passes if pass_.applied}
    assert "fold_batch_norms" in names
    assert report.saved > 0.5
    requests = {name: many[:1] for name, many in requests_for(basic_pitch_model).items()}
    assert_same_answers(basic_pitch_model, tmp_path / "cut", requests)


@pytest.mark.slow
def test_wide_and_deep_keeps_every_table_and_score(wdl_model: Path, tmp_path: Path) -> None:
    report = cut(wdl_model, tmp_path / "cut")
    assert report.target is not None
    assert report.target.nodes <= 0.35 * report.source.nodes
    tables = [table for table in report.tables if table.keys > 1]
    assert len(tables) == 52
    assert_same_answers(wdl_model, tmp_path / "cut", requests_for(wdl_model), exact=True)
