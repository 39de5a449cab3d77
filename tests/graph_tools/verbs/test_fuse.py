# SPDX-License-Identifier: Apache-2.0
"""Test whole fusions: their verification, their files and their reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools import cut, fuse, inspect, optimize, verify
from graph_tools.errors import UnreadableError, UsageError, VerificationError
from graph_tools.options import CutOptions
from graph_tools.readers import read_model
from helpers.graph_tools import cut_models, fused_tower
from helpers.graph_tools.fused_tower import FuseLayers, use_passes
from helpers.graph_tools.stock_answers import answers

MANIFEST = "assets.extra/recprocessor/manifest.json"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fused_tower.build_tower(tmp_path_factory.mktemp("tower") / "model")


@pytest.fixture(autouse=True)
def layers(monkeypatch: pytest.MonkeyPatch) -> None:
    use_passes(monkeypatch, FuseLayers())


def _requests() -> dict[str, Any]:
    x = np.random.default_rng(1).normal(size=(5, fused_tower.FEATURES)).astype(np.float32)
    return {"x": x, "name": np.array([b"a", b"", b"b", b"c", b"d"], object)}


def _ops(path: Path) -> dict[str, int]:
    return inspect(path).models[0].ops


def test_a_fused_model_has_the_scores_of_its_source(source: Path, tmp_path: Path) -> None:
    before = cut_models.contents(source)
    report = fuse(source, tmp_path / "out", samples=6, precision="fp32")
    assert cut_models.contents(source) == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    ops = _ops(tmp_path / "out")
    assert ops["RecDenseTower"] == 1
    assert not {"MatMul", "BiasAdd", "Relu"} & set(ops)
    assert report.verification is not None
    assert report.verification.passed
    assert report.verification.a.path == str(source)
    first, second = (answers(path, _requests()) for path in (source, tmp_path / "out"))
    np.testing.assert_allclose(second["score"], first["score"], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(second["bucket"], first["bucket"])


def test_sites_are_named_as_in_the_source_and_in_the_result(source: Path, tmp_path: Path) -> None:
    report = fuse(source, tmp_path / "out", samples=3, precision="fp32")
    (found,) = report.fused
    assert (found.name, found.applied) == ("fuse_layers", 1)
    (site,) = found.sites
    assert (site.op, site.what) == ("RecDenseTower", "2 layers, 5 inputs")
    assert site.node in read_model(source).graph
    assert site.node in read_model(tmp_path / "out").graph
    assert [(site.endswith("BiasAdd"), why) for site, why in found.refused] == [
        (True, "no layer before it, expected two")
    ]


def test_manifest(source: Path, tmp_path: Path) -> None:
    fuse(source, tmp_path / "out", samples=3, user_inputs=["name"])
    said = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert said["fused"] is True
    assert said["requires"] == {"recprocessor_ops": 1}
    assert said["user_inputs"] == []  # no pass has split them from the items
    assert [(pass_["name"], pass_["applied"], pass_["refused"], len(pass_["sites"])) for pass_ in said["fusing"]] == [
        ("fuse_layers", 1, 1, 1)
    ]
    assert said["precision"]["permitted"] == "bf16"
    assert "saved_model.pb" in said["files"]
    # The graph was written anew with its precision: the sum is of what is there.
    sums = {name: cut_models.contents(tmp_path / "out")[name] for name in said["files"]}
    assert sums == said["files"]


def test_the_manifest_of_a_cut_model_says_that_it_is_not_fused(source: Path, tmp_path: Path) -> None:
    cut(source, tmp_path / "out", samples=3)
    said = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert said["fused"] is False
    assert "precision" not in said


def test_optimize_gives_the_result_of_cut_and_fuse(source: Path, tmp_path: Path) -> None:
    cut(source, tmp_path / "cut", samples=3)
    fuse(tmp_path / "cut", tmp_path / "a", samples=3)
    report = optimize(source, tmp_path / "b", samples=3)
    assert _ops(tmp_path / "a") == _ops(tmp_path / "b")
    assert report.source.path == str(source)
    assert {path.name for path in tmp_path.iterdir()} == {"cut", "a", "b"}


def test_fusing_again_changes_nothing(source: Path, tmp_path: Path) -> None:
    fuse(source, tmp_path / "a", samples=3)
    report = fuse(tmp_path / "a", tmp_path / "b", samples=3)
    assert [(pass_.applied, pass_.sites) for pass_ in report.fused] == [(0, [])]
    assert _ops(tmp_path / "a") == _ops(tmp_path / "b")
    assert verify(tmp_path / "a", tmp_path / "b", samples=6).bit_exact


def test_a_pass_that_computes_something_else_is_left_out(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_passes(monkeypatch, FuseLayers(wrong=True))
    report = fuse(source, tmp_path / "out", samples=6)
    assert [left_out.name for left_out in report.left_out] == ["fuse_layers"]
    assert "output 'score'" in report.left_out[0].reason
    assert not sum(pass_.applied for pass_ in report.fused)
    assert "RecDenseTower" not in _ops(tmp_path / "out")
    assert verify(source, tmp_path / "out", samples=6).passed


def test_a_weak_proof_leaves_no_files(source: Path, tmp_path: Path) -> None:
    with pytest.raises(
        VerificationError, match=r"out: not written, since the proof is weak: .* 1 row answered"
    ) as caught:
        fuse(source, tmp_path / "out", samples=1)
    assert list(tmp_path.iterdir()) == []
    assert caught.value.report["schema"] == "fuse_report/1"
    assert (caught.value.report["target"], caught.value.report["precision"]) == (None, None)
    assert caught.value.report["fused"][0]["applied"] == 1


def test_passes_can_be_left_out(source: Path, tmp_path: Path) -> None:
    report = fuse(source, tmp_path / "out", samples=3, skip_passes=["fuse_layers"])
    assert report.fused == []
    assert "RecDenseTower" not in _ops(tmp_path / "out")


def test_wrong_use_is_named_before_anything_is_done(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--skip-pass fuse: no such pass, expected one of: fuse_layers"):
        fuse(source, tmp_path / "out", skip_passes=["fuse"])
    with pytest.raises(UsageError, match="--precision: 'fp16', expected one of fp32, bf16, int8, auto"):
        fuse(source, tmp_path / "out", precision="fp16")
    with pytest.raises(UsageError, match="--max-auc-loss: 2, expected a number from 0 to 1"):
        fuse(source, tmp_path / "out", max_auc_loss=2)
    with pytest.raises(UsageError, match="--user-inputs: no input 'user', expected some of: name, x"):
        fuse(source, tmp_path / "out", user_inputs=["user"])
    with pytest.raises(UnreadableError, match=r"none.so, expected a library of TensorFlow ops"):
        fuse(source, tmp_path / "other", op_library=tmp_path / "none.so")
    assert list(tmp_path.iterdir()) == []


def test_dry_run_writes_nothing(source: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    report = fuse(source, None, dry_run=True, table_store=store)
    assert list(tmp_path.iterdir()) == []
    assert report.fused[0].applied == 1
    assert (report.verification, report.precision, report.dry_run) == (None, None, True)
    assert report.target is not None
    assert report.target.nodes < report.source.nodes


def test_optimize_applies_the_options_of_cut(source: Path, tmp_path: Path) -> None:
    options = CutOptions(keep_graph_names=True)
    optimize(source, tmp_path / "out", samples=3, options=options, outputs=["score"])
    found = read_model(tmp_path / "out")
    assert list(found.signatures["serving_default"].outputs) == ["score"]
    assert any(name.startswith("StatefulPartitionedCall/") for name in found.graph.nodes)


def test_progress_is_reported(source: Path, tmp_path: Path) -> None:
    class Told:
        def __init__(self) -> None:
            self.steps: list[str] = []

        def begin(self, text: str, total: int | None = None, unit: str = "") -> None:
            self.steps.append(text.partition(" ")[0])

        def advance(self, count: int) -> None: ...

    told = Told()
    fuse(source, tmp_path / "out", samples=3, progress=told)
    assert told.steps == [
        "Reading",
        "Rewriting",
        "Fusing",
        "Writing",
        "Running",
        "Running",
        "Comparing",
        *["Running"] * 2,
        "Identifying",
    ]
