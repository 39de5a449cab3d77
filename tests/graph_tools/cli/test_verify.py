# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from helpers.graph_tools.cut_models import run
from helpers.models import verify_models

ROWS = np.arange(12, dtype=np.float32).reshape(6, 2) / 8


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    first = verify_models.build_lookup(folder / "a", rows=ROWS)
    return first, verify_models.build_lookup(folder / "b", rows=ROWS + np.float32(1e-3))


def test_equal_models(pair: tuple[Path, Path]) -> None:
    found = run("verify", pair[0], pair[0], "--samples", 6)
    assert (found.code, found.err) == (0, "")
    assert re.search(r"^score +\d+ +0 +bit-exact ", found.out, re.M)
    assert re.search(r"^equal 6 of 6 requests, .*: scores are equal bit for bit, tolerance 1e-05", found.out, re.M)


def test_models_that_differ(pair: tuple[Path, Path], tmp_path: Path) -> None:
    report = tmp_path / "new" / "report.json"
    found = run("verify", *pair, "--samples", 6, "--seed", 3, "--report", report)
    assert (found.code, found.err) == (1, "")
    assert re.search(r"^differs signature 'serving_default', output 'score': .* elements differ", found.out, re.M)
    assert re.search(r"^not equal 6 of 6 requests", found.out, re.M)
    data = json.loads(report.read_text())
    assert (data["passed"], data["seed"]) == (False, 3)
    assert run("verify", *pair, "--samples", 6, "--tolerance", "0.01").code == 0


def test_json(pair: tuple[Path, Path]) -> None:
    found = run("verify", *pair, "--samples", 4, "--json")
    assert (found.code, found.err) == (1, "")
    assert json.loads(found.out)["schema"] == "verify_report/1"


def test_labels_and_tables(pair: tuple[Path, Path], tmp_path: Path) -> None:
    import tensorflow as tf

    module = tf.Module()
    module.w = tf.Variable([[1.0], [2.0]], name="w")
    specs = [tf.TensorSpec([None, 2], tf.float32, name="x")]
    module.serve = tf.function(lambda x: {"y": tf.matmul(x, module.w)[:, 0]}, input_signature=specs)
    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"serving_default": module.serve})
    rows = tmp_path / "rows.npz"
    np.savez(rows, x=np.array([[0, 1], [1, 0], [3, 3]], np.float32), labels=[1, 0, 1])
    found = run("verify", tmp_path / "m", tmp_path / "m", "--requests", rows, "--samples", 2)
    assert found.code == 0
    assert "1.00000 / 1.00000" in found.out


def test_models_of_different_inputs(pair: tuple[Path, Path], tiny_model: Path) -> None:
    found = run("verify", pair[0], tiny_model, "--samples", 2)
    assert found.code == 1
    assert "input 'item': only the first model has it" in found.out


def test_wrong_use(pair: tuple[Path, Path], tmp_path: Path) -> None:
    for arguments, message in (
        (["--tolerance", "x"], "tolerance: 'x'"),
        (["--requests", tmp_path / "none"], "does not exist"),
        (["--report", tmp_path], "a folder, expected a file"),
        (["--op-library", tmp_path / "none.so"], "none.so"),
        (["--memory-limit", "nan"], "--memory-limit: nan"),
    ):
        found = run("verify", *pair, *arguments)
        assert (found.code, found.out) == (2, "")
        (line,) = found.err.splitlines()
        assert message in line
