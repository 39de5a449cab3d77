# SPDX-License-Identifier: Apache-2.0
"""Test every option of `graph-tools fuse` through the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from graph_tools.graph.op_library import load_library
from helpers.graph_tools import fused_tower
from helpers.graph_tools.cut_models import contents, report_of, run
from helpers.graph_tools.fused_tower import FuseLayers, use_passes


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fused_tower.build_tower(tmp_path_factory.mktemp("tower") / "model")


@pytest.fixture(autouse=True)
def layers(monkeypatch: pytest.MonkeyPatch) -> None:
    use_passes(monkeypatch, FuseLayers())


def test_reports_are_printed_as_tables(source: Path, tmp_path: Path) -> None:
    before = contents(source)
    found = run("fuse", source, tmp_path / "out", "--samples", 6)
    assert (found.code, found.err) == (0, "")
    assert contents(source) == before
    assert re.search(r"^Fused$", found.out, re.M)
    assert re.search(r"^fuse_layers +1 +\d+ +1 x no layer before it, expected two$", found.out, re.M)
    assert "site by site" not in found.out
    assert "precision bf16: every output loses at most 0.001" in found.out
    assert re.search(
        r"^  bf16 against fp32: largest difference \S+, rank correlation loss \S+; 6 requests", found.out, re.M
    )
    assert "verified 6 of 6 requests" in found.out
    assert found.out.splitlines()[-1].startswith(f"written to {tmp_path}/out in ")


def test_explain_prints_every_site(source: Path, tmp_path: Path) -> None:
    found = run("fuse", source, "--dry-run", "--explain")
    assert (found.code, found.err) == (0, "")
    assert re.search(r"^Forecast$", found.out, re.M)
    assert re.search(r"^fuse_layers +\S+BiasAdd_1 +RecDenseTower +2 layers, 5 inputs$", found.out, re.M)
    assert re.search(r"^fuse_layers +\S+BiasAdd +no layer before it, expected two$", found.out, re.M)
    assert found.out.splitlines()[-1].startswith("nothing was written in ")


def test_passes_are_listed(tmp_path: Path) -> None:
    found = run("fuse", "--list-passes")
    assert (found.code, found.err) == (0, "")
    assert re.match(r"fuse_layers +Make a tower of two dense layers\n", found.out)
    assert re.search(r"^fold_batch_norms +\S", found.out, re.M)


def test_skipped_passes(source: Path, tmp_path: Path) -> None:
    found = run("fuse", source, tmp_path / "out", "--skip-pass", "fuse_layers", "--samples", 2)
    assert found.code == 0
    assert "nothing was fused (--explain says more)" in found.out
    found = run("fuse", source, tmp_path / "other", "--skip-pass", "cut")
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("error: --skip-pass cut: no such pass, expected one of: fuse_layers, ")


def test_live_model_is_reported(source: Path, tmp_path: Path) -> None:
    found = run("fuse", source, tmp_path / "out", "--live", "--precision", "fp32", "--samples", 3)
    assert found.code == 0
    assert "live follows " in found.out


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_precision(source: Path, tmp_path: Path, precision: str) -> None:
    data = report_of("fuse", source, tmp_path / "out", "--precision", precision, "--samples", 3)
    assert (data["precision"]["permitted"], data["precision"]["forced"]) == (precision, precision == "bf16")


def test_report_requests_and_tolerance(source: Path, tmp_path: Path) -> None:
    x = np.ones((4, fused_tower.FEATURES), np.float32)
    np.savez(tmp_path / "asked.npz", x=x, name=np.array(["a", "b", "c", "d"]))
    asked = ["--requests", tmp_path / "asked.npz", "--samples", 0, "--tolerance", "1e-3", "--memory-limit", 1]
    asked.append("--accept-weak-proof")
    data = report_of("fuse", source, tmp_path / "out", *asked, "--report", tmp_path / "new" / "r.json")
    assert json.loads((tmp_path / "new" / "r.json").read_text()) == data
    assert (data["verification"]["requests"], data["verification"]["rows"]) == (1, 4)
    assert data["verification"]["tolerance"]["absolute"] == 1e-3
    assert data["options"]["memory_limit"] == 1_000_000_000


def test_a_wrong_pass_is_left_out_and_named(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_passes(monkeypatch, FuseLayers(wrong=True))
    found = run("fuse", source, tmp_path / "out", "--samples", 4)
    assert (found.code, found.err) == (0, "")
    assert re.search(
        r"^left out fuse_layers.*, since the outputs differ with it: signature '.*elements differ", found.out, re.M
    )


def test_a_weak_proof_fails_with_its_report(source: Path, tmp_path: Path) -> None:
    asked = ["--samples", 1, "--seed", 5, "--report", tmp_path / "r.json"]
    found = run("fuse", source, tmp_path / "out", *asked)
    assert (found.code, found.out) == (1, "")
    assert found.err.startswith(f"error: {tmp_path}/out: not written, since the proof is weak: ")
    assert "--accept-weak-proof" in found.err
    assert json.loads((tmp_path / "r.json").read_text())["verification"]["weak"]
    assert json.loads((tmp_path / "r.json").read_text())["verification"]["seed"] == 5
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
    assert run("fuse", source, tmp_path / "out", *asked, "--accept-weak-proof").code == 0


def test_library_store_and_user_inputs(source: Path, tmp_path: Path) -> None:
    chosen = ["--op-library", load_library(), "--table-store", tmp_path / "store", "--user-inputs", "x, name"]
    data = report_of("fuse", source, tmp_path / "out", *chosen, "--no-verify")
    assert data["library"] == str(load_library())
    assert data["fuse_options"]["user_inputs"] == ["x", "name"]
    assert data["fuse_options"]["table_store"] == str(tmp_path / "store")
    found = run("fuse", source, tmp_path / "other", "--op-library", tmp_path / "none.so")
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith(f"error: libprocessor.so: no file {tmp_path}/none.so, expected a library of")


def test_fused_models_can_be_inspected_and_verified(source: Path, tmp_path: Path) -> None:
    assert run("fuse", source, tmp_path / "out", "--samples", 2).code == 0
    library = ["--op-library", load_library()]
    found = run("inspect", tmp_path / "out", *library)
    assert (found.code, found.err) == (0, "")
    assert "custom ops: RecDenseTower" in found.out
    found = run("diff", source, tmp_path / "out", *library)
    assert re.search(r"^RecDenseTower +0 +1 +\+1$", found.out, re.M)
    assert "signatures are equal" in found.out
    found = run("verify", source, tmp_path / "out", *library, "--samples", 4)
    assert (found.code, found.err) == (0, "")
    assert re.search(r"^equal 4 of 4 requests", found.out, re.M)
    found = run("cut", tmp_path / "out", tmp_path / "again")
    assert (found.code, found.out) == (2, "")
    assert "contains RecDenseTower, expected a model that is not fused yet" in found.err
