# SPDX-License-Identifier: Apache-2.0
"""Test that an artifact, optimized with recorded requests, is served in int8 or in what else is permitted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import processor
from graph_tools import optimize
from graph_tools.graph.op_library import library_info, load_library
from graph_tools.verification.ranking import spearman
from helpers.graph_tools.deep_models import build_deep, write_requests
from helpers.graph_tools.stock_answers import answers

pytestmark = pytest.mark.skipif(
    "int8" not in library_info(load_library()).precisions, reason="the CPU has no AVX512_VNNI"
)
ROWS = 600
SERVE = """
import json, sys
import numpy as np
import processor
with processor.Model(sys.argv[1]) as model:
    score = np.array(model.run({"x": np.load(sys.argv[2])["x"]})["score"])
    print(json.dumps([model.info["precision"], model.info["precision_reason"], score.tolist()]))
"""


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_requests(tmp_path_factory.mktemp("requests") / "recorded.npz", ROWS)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_deep(tmp_path_factory.mktemp("deep") / "model")


@pytest.fixture(scope="module")
def artifact(source: Path, requests: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("int8") / "model"
    report = optimize(source, out, requests=[requests], samples=8)
    assert report.precision is not None
    assert report.precision.permitted == "int8"
    return out


@pytest.fixture(scope="module")
def expected(source: Path, requests: Path) -> Any:
    return answers(source, {"x": np.load(requests)["x"]})["score"]


def assert_keeps_the_order(scores: Any, expected: Any) -> None:
    correlation = spearman(np.ravel(scores), np.ravel(expected))
    assert correlation is not None
    assert correlation > 1 - 1e-3


def test_int8_is_served_in_every_batch_alike(artifact: Path, requests: Path, expected: Any) -> None:
    x = np.load(requests)["x"]
    with processor.Model(artifact) as model:
        assert model.info["precision"] == "int8"
        assert model.info["precision_reason"] == "the certificate permits int8; the CPU computes with int8"
        scores = np.array(model.run({"x": x})["score"])
        ones = [np.array(model.run({"x": x[row : row + 1]})["score"]) for row in range(40)]
    assert not np.array_equal(scores, expected)
    assert_keeps_the_order(scores, expected)
    # The row of an int8 product does not depend on the rows beside it; the last layer's sum is of floats.
    np.testing.assert_allclose(np.concatenate(ones), scores[:40], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("precision", "served", "reason"),
    [("bf16", {"bf16", "bf16 weights"}, "the configuration asks for bf16"), ("fp32", {"fp32"}, "asks for fp32")],
)
def test_the_configuration_turns_int8_off(
    artifact: Path, requests: Path, expected: Any, precision: str, served: set[str], reason: str
) -> None:
    with processor.Model(artifact, {"precision": precision}) as model:
        assert model.info["precision"] in served
        assert reason in model.info["precision_reason"]
        assert_keeps_the_order(np.array(model.run({"x": np.load(requests)["x"]})["score"]), expected)


@pytest.mark.parametrize("isa", ["AVX512_CORE", "AVX2"])
def test_a_cpu_without_int8_serves_what_else_is_permitted(
    artifact: Path, requests: Path, expected: Any, isa: str
) -> None:
    command = [sys.executable, "-c", SERVE, str(artifact), str(requests)]
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": isa}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    precision, reason, scores = json.loads(done.stdout.splitlines()[-1])
    assert precision == "bf16 weights"
    assert "; int8 is not used, because the CPU has no int8 arithmetic" in reason
    assert_keeps_the_order(scores, expected)
