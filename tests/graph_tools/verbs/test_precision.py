# SPDX-License-Identifier: Apache-2.0
"""Test that bf16 is permitted if it was measured to change little, and refused with a reason otherwise."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools import fuse
from graph_tools.readers import read_model
from graph_tools.report.fuse import FuseReport
from graph_tools.report.precision import Loss
from graph_tools.verbs.cpu import this_cpu
from graph_tools.verbs.precision import LIMIT
from helpers.graph_tools import fused_tower


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fused_tower.build_tower(tmp_path_factory.mktemp("tower") / "model")


@pytest.fixture(autouse=True)
def layers(monkeypatch: pytest.MonkeyPatch) -> None:
    fused_tower.use_passes(monkeypatch, fused_tower.FuseLayers())


def _fused(source: Path, out: Path, **options: Any) -> tuple[FuseReport, dict[str, Any], set[bytes]]:
    """Fuse; return the report, the manifest's `precision`, and what the ops of the artifact say."""
    report = fuse(source, out, **{"samples": 13, **options})
    manifest = json.loads((out / "assets.extra/recprocessor/manifest.json").read_text())
    towers = read_model(out).graph.of("RecDenseTower")
    return report, manifest["precision"], {tower.attrs["precision"].s for tower in towers}


def test_auto_permits_bf16_if_it_keeps_the_order_of_scores(source: Path, tmp_path: Path) -> None:
    report, said, attributes = _fused(source, tmp_path / "out")
    assert attributes == {b"auto"}
    assert (said["requested"], said["permitted"], said["forced"]) == ("auto", "bf16", False)
    assert said["reason"] == "every output loses at most 0.001"
    measured = said["certificate"]
    assert 0 < measured["max_difference"] < 1
    assert 0 < measured["rank_correlation_loss"] < LIMIT
    assert measured["auc_loss"] is None
    assert (measured["requests"], measured["rows"]) == (12, 1187)
    assert measured["cpu"] == this_cpu().model
    assert measured["cpu_features"] == list(this_cpu().features)
    assert report.precision is not None
    assert {loss.name: loss.problem for loss in report.precision.losses} == {"bucket": None, "score": None}
    # What is verified against the source is fp32.
    assert report.verification is not None
    assert report.verification.passed


def test_auto_refuses_bf16_if_it_changes_the_order_of_scores(tmp_path: Path) -> None:
    close = fused_tower.build_tower(tmp_path / "source", cancelling=True)
    _, said, attributes = _fused(close, tmp_path / "out")
    assert attributes == {b"fp32"}
    assert (said["permitted"], said["forced"]) == ("fp32", False)
    assert said["reason"].startswith("signature 'serving_default', output 'score': loses 0.")
    assert said["reason"].endswith(" of rank correlation in bf16, expected at most 0.001")
    assert said["certificate"]["rank_correlation_loss"] > LIMIT


def test_labels_take_precedence_over_rank_correlation(tmp_path: Path) -> None:
    close = fused_tower.build_tower(tmp_path / "source", cancelling=True)
    random = np.random.default_rng(0)
    x = random.normal(size=(400, fused_tower.FEATURES)).astype(np.float32)
    names = np.array([b"a", b"b"] * (len(x) // 2))
    # Labels that have nothing to do with the scores: whatever their order is, AUC stays about a half.
    np.savez(tmp_path / "labeled.npz", x=x, name=names, labels=np.arange(len(x)) % 2)
    _, said, _ = _fused(close, tmp_path / "out", requests=[tmp_path / "labeled.npz"], samples=0)
    measured, without_int8 = said["certificate"], said["without_int8"] or said
    assert measured["rank_correlation_loss"] > LIMIT
    assert measured["auc_loss"] is not None
    assert without_int8["permitted"] == ("bf16" if measured["auc_loss"] <= LIMIT else "fp32")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_requested_precision_is_applied(source: Path, tmp_path: Path, precision: str) -> None:
    _, said, attributes = _fused(source, tmp_path / "out", precision=precision)
    assert attributes == {precision.encode()}
    assert (said["requested"], said["permitted"], said["forced"]) == (precision, precision, precision == "bf16")
    assert said["reason"] == f"asked for with --precision {precision}"
    assert (said["certificate"] is None) == (precision == "fp32")


def test_nothing_is_measured_without_verification(source: Path, tmp_path: Path) -> None:
    _, said, attributes = _fused(source, tmp_path / "a", check=False)
    assert (attributes, said["permitted"], said["reason"]) == ({b"fp32"}, "fp32", "not measured: --no-verify")
    _, said, attributes = _fused(source, tmp_path / "b", check=False, precision="bf16")
    assert (attributes, said["permitted"], said["certificate"]) == ({b"bf16"}, "bf16", None)


def test_a_graph_without_such_ops(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fused_tower.use_passes(monkeypatch)
    report, said, attributes = _fused(source, tmp_path / "out")
    assert attributes == set()
    assert (said["permitted"], said["reason"]) == ("fp32", "no op of the graph has another precision")
    assert report.fused == []


def test_a_precision_that_the_result_has_is_measured_anew(source: Path, tmp_path: Path) -> None:
    _fused(source, tmp_path / "auto")
    _, said, attributes = _fused(tmp_path / "auto", tmp_path / "again")
    assert (attributes, said["permitted"]) == ({b"auto"}, "bf16")
    assert said["certificate"]["rank_correlation_loss"] < LIMIT


def test_reasons_that_forbid_bf16() -> None:
    from graph_tools.verbs.precision_trial import loss_of
    from graph_tools.verification import OutputComparison

    def loss(**measured: Any) -> Loss:
        output = OutputComparison("s", "y", **{"dtype": "float32", "elements": 9, "beyond": 9} | measured)
        return loss_of(output, "bf16", LIMIT)

    assert loss(rank_correlation=1 - 1e-4).problem is None
    assert loss(rank_correlation=0.9, auc_a=0.8, auc_b=0.7995).problem is None
    assert loss(rank_correlation=0.9, auc_a=0.7, auc_b=0.9).problem is None
    for measured, said in (
        ({"rank_correlation": 0.99}, "loses 0.01 of rank correlation in bf16, expected at most 0.001"),
        ({"rank_correlation": 1.0, "auc_a": 0.8, "auc_b": 0.7}, "loses 0.1 of AUC in bf16, expected at most 0.001"),
        ({"max_abs_difference": 0.5}, "differs by 0.5 in bf16, and its values have no order to compare"),
        ({"dtype": "int64", "rank_correlation": 1.0}, "outputs other than scores differ in bf16"),
        ({"rank_correlation": 1.0, "nan_apart": 1}, "outputs other than scores differ in bf16"),
        (
            {"rank_correlation": 1.0, "max_abs_difference": 70.0, "far": 1},
            "differs by 70 in bf16, expected at most 0.05 + 0.1 x |score|",
        ),
    ):
        found = loss(**measured)
        assert found.problem == f"signature 's', output 'y': {said}", asdict(found)


def test_processors(tmp_path: Path) -> None:
    lines = "processor : 0\nvendor_id : {}\nmodel name : A CPU\nflags : fpu avx2 {}\n\nprocessor : 1\nmodel name : B\n"
    file = tmp_path / "cpuinfo"
    for vendor, flags, arithmetic in (
        ("GenuineIntel", "avx512_bf16", "bf16 weights"),
        ("GenuineIntel", "amx_tile amx_bf16", "bf16"),
        ("AuthenticAMD", "avx512_bf16", "bf16"),
        ("AuthenticAMD", "", "bf16 weights"),
    ):
        file.write_text(lines.format(vendor, flags))
        found = this_cpu(file)
        assert (found.model, found.features, found.arithmetic) == ("A CPU", ("avx2", *flags.split()), arithmetic)
    assert this_cpu(tmp_path / "none").model == "unknown"
