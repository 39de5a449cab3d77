# SPDX-License-Identifier: Apache-2.0
"""The Java smoke test, built by Maven and run with a real model."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.hosts.contract_messages import decode, encode
from helpers.hosts.deeprec_abi import drop_in_config
from helpers.oracles.outputs import assert_same_outputs
from helpers.system.programs import ROOT, require, run, run_ok


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs the smoke test."""
    require("java", "javac", "mvn")
    folder = tmp_path_factory.mktemp("java") / "smoke"
    shutil.copytree(ROOT / "libprocessor" / "examples" / "java", folder)
    run_ok(["mvn", "--quiet", "--batch-mode", "compile", "dependency:copy-dependencies"], cwd=folder, timeout=600)
    classes = f"{folder / 'target' / 'classes'}{os.pathsep}{folder / 'target' / 'dependency'}/*"
    return ["java", "-cp", classes, "recprocessor.SmokeTest"]


def test_java_answers_as_tensorflow_does(
    java: list[str],
    library: Path,
    host_model: Path,
    inputs: list[dict[str, Any]],
    stock: Callable[[dict[str, Any]], dict[str, np.ndarray]],
    tmp_path: Path,
) -> None:
    request, response = tmp_path / "request", tmp_path / "response"
    request.write_bytes(encode(inputs[2]))
    text = run_ok([*java, library, json.dumps(drop_in_config(host_model)), request, response])
    assert "OK: libprocessor " in text
    assert '"serving_default"' in text
    assert_same_outputs(decode(response.read_bytes()), stock(inputs[2]))


def test_java_reports_failures(java: list[str], library: Path, host_model: Path, tmp_path: Path) -> None:
    request = tmp_path / "request"
    request.write_bytes(b"\xff")
    ended = run([*java, library, json.dumps(drop_in_config(host_model)), request, tmp_path / "response"])
    assert ended.returncode != 0
    assert "500: [TensorFlow]" in ended.stderr
    ended = run([*java, library, json.dumps(drop_in_config(Path("/nowhere"))), request, tmp_path / "response"])
    assert ended.returncode != 0
    assert "initialize: state -1" in ended.stderr
