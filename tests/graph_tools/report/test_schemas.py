# SPDX-License-Identifier: Apache-2.0
"""Test that real reports are valid under the published schemas, and that other data is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from graph_tools import cut, diff, fuse, inspect, verify
from graph_tools.errors import VerificationError
from graph_tools.json_data import to_text
from graph_tools.options import CutOptions
from helpers.graph_tools import cut_models, fused_tower
from helpers.models import verify_models


def _validator(name: str, repository: Path) -> jsonschema.Draft202012Validator:
    schema = json.loads((repository / "docs" / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def _check(data: dict[str, Any], repository: Path) -> None:
    validator = _validator(data["schema"].partition("/")[0], repository)
    written = json.loads(to_text(data))
    validator.validate(written)
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(written | {"another": 1})
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"schema": data["schema"]})


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    b = rows.copy()
    b[0] = [np.inf, np.nan]
    return (
        verify_models.build_lookup(folder / "a", rows=rows),
        verify_models.build_lookup(folder / "b", rows=b),
    )


def test_verify_reports(pair: tuple[Path, Path], string_model: Path, tmp_path: Path, repository: Path) -> None:
    a, b = pair
    for report in (verify(a, a, samples=6), verify(a, b), verify(a, b, memory_limit=64), verify(a, string_model)):
        _check(report.to_json(), repository)
    rows = tmp_path / "rows.npz"
    np.savez(rows, item=np.array(["apple", "pear"]), labels=[0, 1])
    labeled = verify(a, a, requests=[rows], samples=2)
    assert labeled.to_json()["outputs"][0]["auc_a"] is None
    _check(labeled.to_json(), repository)
    fewer = verify_models.build_lookup(tmp_path / "fewer", rows=np.zeros((3, 2), np.float32))
    assert verify(a, fewer).refused
    _check(verify(a, fewer).to_json(), repository)


def test_inspect_reports(pair: tuple[Path, Path], string_model: Path, echo_model: Path, repository: Path) -> None:
    _check(inspect(*pair, string_model, echo_model).to_json(), repository)


def test_diff_reports(pair: tuple[Path, Path], string_model: Path, repository: Path) -> None:
    for a, b in (pair, (string_model, pair[0]), (string_model, string_model)):
        _check(diff(a, b).to_json(), repository)


def test_cut_reports_and_manifests(string_model: Path, tmp_path: Path, repository: Path) -> None:
    served = cut_models.build_served(string_model, tmp_path / "served")
    sparse = cut_models.build_sparse(tmp_path / "sparse", default=np.ones((4, cut_models.DIM), np.float32))
    with pytest.raises(VerificationError) as caught:
        cut(sparse, tmp_path / "narrow", options=CutOptions(embedding_dtype="int8"), tolerance="0,0", samples=3)
    assert caught.value.report["target"] is None
    _check(caught.value.report, repository)
    lossy = CutOptions(tensor_types={"e*": "int4"}, absent_key={"emb": "row:10"}, min_norm=0.5, min_frequency=1)
    _check(cut(sparse, None, options=lossy, dry_run=True).to_json(), repository)
    for number, (source, options, check) in enumerate(
        ((served, CutOptions(), True), (sparse, lossy, True), (sparse, CutOptions(), False))
    ):
        out = tmp_path / str(number)
        _check(cut(source, out, options=options, check=check, samples=3).to_json(), repository)
        _check(json.loads((out / "assets.extra/recprocessor/manifest.json").read_text()), repository)


def test_fuse_reports_and_manifests(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = fused_tower.build_tower(tmp_path / "source")
    fused_tower.use_passes(monkeypatch, fused_tower.FuseLayers())
    for number, options in enumerate(({}, {"precision": "bf16", "user_inputs": ["x"]}, {"check": False})):
        out = tmp_path / str(number)
        _check(fuse(source, out, samples=3, **options).to_json(), repository)
        manifest = json.loads((out / "assets.extra/recprocessor/manifest.json").read_text())
        _check(manifest, repository)
        del manifest["precision"]
        with pytest.raises(jsonschema.ValidationError):
            _validator("manifest", repository).validate(manifest)
    _check(fuse(source, None, dry_run=True, table_store="store").to_json(), repository)
    with pytest.raises(VerificationError) as caught:
        fuse(source, tmp_path / "out", samples=1)
    _check(caught.value.report, repository)
    fused_tower.use_passes(monkeypatch, fused_tower.FuseLayers(wrong=True))
    left = fuse(source, tmp_path / "out", samples=3).to_json()
    assert left["left_out"]
    _check(left, repository)
