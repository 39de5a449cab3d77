# SPDX-License-Identifier: Apache-2.0
"""Test `graph-tools optimize`, which has the options of `cut` and of `fuse`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.graph_tools import cut_models, fused_tower
from helpers.graph_tools.cut_models import build_sparse, report_of, run
from helpers.graph_tools.fused_tower import FuseLayers, use_passes


@pytest.fixture(autouse=True)
def layers(monkeypatch: pytest.MonkeyPatch) -> None:
    use_passes(monkeypatch, FuseLayers())


def test_an_export_is_cut_fused_and_verified(tmp_path: Path) -> None:
    source = fused_tower.build_tower(tmp_path / "source")
    found = run("optimize", source, tmp_path / "out", "--samples", 4, "--explain", "--precision", "fp32")
    assert (found.code, found.err) == (0, "")
    assert re.search(r"^fuse_layers +\S+ +RecDenseTower +2 layers, 5 inputs$", found.out, re.M)
    assert "verified 4 of 4 requests" in found.out
    assert {path.name for path in tmp_path.iterdir()} == {"source", "out"}


def test_both_kinds_of_options(tmp_path: Path) -> None:
    source = build_sparse(tmp_path / "source", random=True)
    chosen = ["--absent-key", "emb=zero", "--embedding-dtype", "int8", "--min-norm", 0.5, "--keep-graph-names"]
    chosen += ["--signature", "serving_default", "--outputs", "rows", "--samples", 3, "--skip-pass", "fuse_layers"]
    data = report_of("optimize", source, tmp_path / "out", *chosen)
    assert (data["schema"], data["lossy"], data["scores_judged"]) == ("fuse_report/1", True, False)
    assert data["options"]["tensor_types"] == {}
    assert (data["tables"][0]["dtype"], data["options"]["min_norm"]) == ("int8", 0.5)
    assert data["fused"] == []


def test_dry_run_and_a_list_of_passes(tmp_path: Path) -> None:
    source = build_sparse(tmp_path / "source")
    before = cut_models.contents(tmp_path)
    found = run("optimize", source, "--dry-run")
    assert (found.code, found.err) == (0, "")
    assert "nothing was fused" in found.out
    assert found.out.splitlines()[-1].startswith("nothing was written in ")
    assert cut_models.contents(tmp_path) == before
    assert run("optimize", "--list-passes").out.startswith("fuse_layers  ")
