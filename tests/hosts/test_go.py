# SPDX-License-Identifier: Apache-2.0
"""The Go module: its own tests with a real model, and the drop-in example."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.hosts.contract_messages import decode, encode
from helpers.hosts.deeprec_abi import drop_in_config
from helpers.oracles.outputs import assert_same_outputs
from helpers.system.programs import ROOT, build_environment, require, run, run_ok, write_pkg_config

MODULE = ROOT / "libprocessor" / "go"

Stock = Callable[[dict[str, Any]], dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def go(library: Path) -> Callable[..., str]:
    """Run the go command in the module."""
    require("go", "cc")

    def command(*arguments: object, **more: str) -> str:
        return run_ok(["go", *arguments], cwd=MODULE, env=build_environment() | more, timeout=900)

    return command


@pytest.fixture(scope="module")
def programs(go: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the drop-in example, and return its folder."""
    folder = tmp_path_factory.mktemp("go")
    go("build", "-o", f"{folder}{os.sep}", "./cmd/drop-in-example")
    return folder


def test_module_is_tidy(go: Callable[..., str]) -> None:
    require("gofmt")
    assert run_ok(["gofmt", "-l", MODULE]) == ""
    go("vet", "./...")
    go("mod", "verify")


@pytest.mark.timeout(1200)
def test_module_passes_its_own_tests(go: Callable[..., str], host_model: Path) -> None:
    text = go("test", "-race", "-count=1", "-timeout=600s", "./...", PROCESSOR_TEST_MODEL=str(host_model), CI="true")
    assert "FAIL" not in text
    for package in ("/processor", "/cmd/recprocessor-host", "/cmd/loadgen"):
        assert f"{package}\t" in text


def test_module_builds_with_pkg_config(go: Callable[..., str], tmp_path: Path) -> None:
    require("pkg-config")
    write_pkg_config(tmp_path)
    program = tmp_path / "drop-in-example"
    environment = {"CGO_CFLAGS": "", "CGO_LDFLAGS": "", "PKG_CONFIG_PATH": str(tmp_path)}
    go("build", "-tags", "pkgconfig", "-o", program, "./cmd/drop-in-example", **environment)
    assert "usage: drop-in-example" in run([program]).stderr


def test_drop_in_example_answers_as_tensorflow_does(
    programs: Path, host_model: Path, inputs: list[dict[str, Any]], stock: Stock, tmp_path: Path
) -> None:
    request, response, config = tmp_path / "request", tmp_path / "response", tmp_path / "config.json"
    request.write_bytes(encode(inputs[4]))
    config.write_text(json.dumps(drop_in_config(host_model)))
    text = run_ok([programs / "drop-in-example", f"@{config}", request, response])
    assert '"signature_name":"serving_default"' in text.replace(" ", "")
    assert_same_outputs(decode(response.read_bytes()), stock(inputs[4]))
    request.write_bytes(b"\xff")
    ended = run([programs / "drop-in-example", config.read_text(), request])
    assert ended.returncode == 1
    assert "500: [TensorFlow]" in ended.stderr
    ended = run([programs / "drop-in-example", "{}", request])
    assert ended.returncode == 1
    assert "initialize: state -1" in ended.stderr
