# SPDX-License-Identifier: Apache-2.0
"""Real reports are valid under the published schemas, and the schemas let nothing else pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import verify_models

from graph_tools import diff, inspect, verify
from graph_tools.report import to_text


def _check(data: dict[str, Any], repository: Path) -> None:
    name = data["schema"].partition("/")[0]
    schema = json.loads((repository / "docs" / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    written = json.loads(to_text(data))
    jsonschema.validate(written, schema, cls=jsonschema.Draft202012Validator)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(written | {"another": 1}, schema, cls=jsonschema.Draft202012Validator)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": data["schema"]}, schema, cls=jsonschema.Draft202012Validator)


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
    labelled = verify(a, a, requests=[rows], samples=2)
    assert labelled.to_json()["outputs"][0]["auc_a"] is None
    _check(labelled.to_json(), repository)
    fewer = verify_models.build_lookup(tmp_path / "fewer", rows=np.zeros((3, 2), np.float32))
    assert verify(a, fewer).refused
    _check(verify(a, fewer).to_json(), repository)


def test_inspect_reports(pair: tuple[Path, Path], string_model: Path, echo_model: Path, repository: Path) -> None:
    _check(inspect(*pair, string_model, echo_model).to_json(), repository)


def test_diff_reports(pair: tuple[Path, Path], string_model: Path, repository: Path) -> None:
    for a, b in (pair, (string_model, pair[0]), (string_model, string_model)):
        _check(diff(a, b).to_json(), repository)
