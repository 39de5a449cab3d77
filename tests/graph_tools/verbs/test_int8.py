# SPDX-License-Identifier: Apache-2.0
"""Test that int8 is permitted if recorded requests show that it changes little, and refused with a reason otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools import fuse
from graph_tools.graph import attribute
from graph_tools.graph.op_library import library_info, load_library
from graph_tools.plans import TowerPlan
from graph_tools.readers import read_model
from graph_tools.verbs.kept_layers import MOST_COMPARISONS
from helpers.graph_tools.cut_models import run
from helpers.graph_tools.deep_models import WIDTHS, build_deep, write_requests
from helpers.system.programs import run_python

pytestmark = pytest.mark.skipif(
    "int8" not in library_info(load_library()).precisions, reason="the CPU has no AVX512_VNNI"
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_deep(tmp_path_factory.mktemp("deep") / "model")


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_requests(tmp_path_factory.mktemp("requests") / "recorded.npz")


def _fused(source: Path, out: Path, **options: Any) -> tuple[dict[str, Any], str, TowerPlan]:
    """Fuse; return the manifest, the attribute of the tower, and its plan."""
    fuse(source, out, **{"samples": 8, **options})
    manifest = json.loads((out / "assets.extra/recprocessor/manifest.json").read_text())
    (tower,) = read_model(out).graph.of("RecDenseTower")
    return manifest, attribute(tower, "precision").decode(), TowerPlan.from_json(attribute(tower, "plan"))


def _kept(plan: TowerPlan) -> dict[int, str]:
    found = {number: getattr(layer, "precision", None) for number, layer in enumerate(plan.layers)}
    return {number: precision for number, precision in found.items() if precision is not None}


def test_recorded_requests_permit_int8(source: Path, requests: Path, tmp_path: Path) -> None:
    manifest, attribute, plan = _fused(source, tmp_path / "out", requests=[requests])
    said = manifest["precision"]
    assert (said["requested"], said["permitted"], said["forced"]) == ("auto", "int8", False)
    assert said["reason"] == "every output loses at most 0.001 in int8"
    assert (attribute, _kept(plan)) == ("auto", {})
    assert manifest["requires"] == {"recprocessor_ops": 3}
    measured = said["int8"]["certificate"]
    assert (measured["arithmetic"], measured["rows"], measured["limit"]) == ("int8", 600, 1e-3)
    assert 0 < measured["rank_correlation_loss"] < 1e-3
    assert said["int8"]["kept"] == []
    assert said["without_int8"] == {"permitted": "bf16", "reason": "every output loses at most 0.001"}
    # bf16 was also measured with the generated requests.
    assert said["certificate"]["arithmetic"] != "int8"
    assert said["certificate"]["rows"] > 600


def test_int8_is_not_considered_without_recorded_requests(source: Path, tmp_path: Path) -> None:
    manifest, _, _ = _fused(source, tmp_path / "out")
    said = manifest["precision"]
    assert said["permitted"] == "bf16"
    assert said["int8"]["reason"] == "not measured: no recorded requests, expected some (--requests)"
    assert (said["int8"]["permitted"], said["int8"]["certificate"], said["without_int8"]) == (False, None, None)
    assert manifest["requires"] == {"recprocessor_ops": 1}


def test_few_recorded_requests_permit_no_int8(source: Path, tmp_path: Path) -> None:
    few = write_requests(tmp_path / "few.npz", 5)
    manifest, _, _ = _fused(source, tmp_path / "out", requests=[few])
    said = manifest["precision"]
    assert said["permitted"] == "bf16"
    assert said["int8"]["reason"] == (
        "the proof is too weak to permit int8: signature 'serving_default': 1 request with 5 rows answered, expected 8 "
        "requests or 32 rows"
    )


def test_a_layer_that_int8_spoils_stays_bf16(tmp_path: Path) -> None:
    source = build_deep(tmp_path / "source", huge=[1])
    asked = write_requests(tmp_path / "asked.npz")
    manifest, attribute, plan = _fused(source, tmp_path / "out", requests=[asked])
    said = manifest["precision"]
    assert said["permitted"] == "int8"
    assert said["reason"] == "every output loses at most 0.001 in int8 with 1 layer in bf16"
    assert (attribute, _kept(plan)) == ("auto", {1: "bf16"})
    (layer,) = said["int8"]["kept"]
    assert (layer["layer"], layer["precision"]) == (1, "bf16")
    assert " of rank correlation is lost with all layers in int8, " in layer["reason"]
    assert said["int8"]["certificate"]["rank_correlation_loss"] < 1e-3


def test_int8_is_refused_with_the_layer_that_spoils_it(tmp_path: Path) -> None:
    every = range(len(WIDTHS))
    source = build_deep(tmp_path / "source", huge=every)
    asked = write_requests(tmp_path / "asked.npz", huge=True)
    report = fuse(source, tmp_path / "out", requests=[asked], samples=8)
    assert report.precision is not None
    said = report.precision.int8
    assert said is not None
    assert not said.permitted
    assert report.precision.permitted != "int8"
    assert "output 'score': loses " in said.reason
    assert " of rank correlation in int8, expected at most 0.001; layer " in said.reason
    assert f" spoils most: with it in {report.precision.permitted}, " in said.reason
    assert 1 < said.comparisons <= MOST_COMPARISONS


def test_int8_is_refused_if_its_only_layer_spoils_it(tmp_path: Path) -> None:
    source = build_deep(tmp_path / "source", huge=[0], widths=[64])
    asked = write_requests(tmp_path / "asked.npz", huge=True)
    manifest, _, plan = _fused(source, tmp_path / "out", requests=[asked])
    assert "; only layer 0 of '" in manifest["precision"]["int8"]["reason"]
    assert (manifest["precision"]["permitted"], _kept(plan)) != ("int8", {})


def test_labels_decide_by_auc(source: Path, tmp_path: Path) -> None:
    labels = np.random.default_rng(1).integers(0, 2, 600)
    asked = write_requests(tmp_path / "asked.npz", labels=labels)
    manifest, _, _ = _fused(source, tmp_path / "out", requests=[asked], max_auc_loss=0.5)
    measured = manifest["precision"]["int8"]["certificate"]
    assert measured["auc_loss"] is not None
    assert (measured["limit"], manifest["precision"]["permitted"]) == (0.5, "int8")


def test_a_limit_of_zero_refuses_int8(source: Path, requests: Path, tmp_path: Path) -> None:
    manifest, _, _ = _fused(source, tmp_path / "out", requests=[requests], max_auc_loss=0.0)
    assert manifest["precision"]["permitted"] == "bf16"
    assert "of rank correlation in int8, expected at most 0;" in manifest["precision"]["int8"]["reason"]


def test_forced_int8_is_measured_and_never_refused(tmp_path: Path) -> None:
    source = build_deep(tmp_path / "source", huge=[1])
    asked = write_requests(tmp_path / "asked.npz")
    manifest, attribute, plan = _fused(source, tmp_path / "out", requests=[asked], precision="int8")
    said = manifest["precision"]
    assert (said["permitted"], said["forced"], said["reason"]) == ("int8", True, "asked for with --precision int8")
    assert (attribute, _kept(plan)) == ("int8", {})
    assert said["int8"]["certificate"]["rank_correlation_loss"] > 1e-3
    assert said["without_int8"]["permitted"] == "bf16"


def test_a_precision_that_layers_have_is_decided_anew(tmp_path: Path) -> None:
    source = build_deep(tmp_path / "source", huge=[1])
    asked = write_requests(tmp_path / "asked.npz")
    assert _kept(_fused(source, tmp_path / "auto", requests=[asked])[2]) == {1: "bf16"}
    _, attribute, plan = _fused(tmp_path / "auto", tmp_path / "fp32", precision="fp32")
    assert (attribute, _kept(plan)) == ("fp32", {})


def test_the_report_is_printed_with_each_kept_layer(tmp_path: Path) -> None:
    source = build_deep(tmp_path / "source", huge=[1])
    asked = write_requests(tmp_path / "asked.npz")
    found = run("optimize", source, tmp_path / "out", "--requests", asked, "--samples", 8)
    assert (found.code, found.err) == (0, "")
    assert "precision int8: every output loses at most 0.001 in int8 with 1 layer in bf16" in found.out
    assert "  bf16 instead of int8: layer 1 of '" in found.out
    assert "  int8 against fp32: largest difference " in found.out
    assert "  on CPUs without int8 arithmetic bf16: every output loses at most 0.001" in found.out


def test_int8_is_not_measured_on_a_cpu_without_it(source: Path, requests: Path, tmp_path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from graph_tools import fuse
        source, requests, out = map(Path, sys.argv[1:])
        for precision in ("auto", "int8"):
            fuse(source, out / precision, requests=[requests], samples=8, precision=precision)
    """
    run_python(code, source, requests, tmp_path, ONEDNN_MAX_CPU_ISA="AVX2")
    for precision, permitted in (("auto", "bf16"), ("int8", "int8")):
        manifest = tmp_path / precision / "assets.extra" / "recprocessor" / "manifest.json"
        said = json.loads(manifest.read_text())["precision"]
        assert said["permitted"] == permitted
        assert said["int8"]["certificate"] is None
        assert said["int8"]["reason"].endswith("not measured: libprocessor has no int8 arithmetic on this CPU")
