# SPDX-License-Identifier: Apache-2.0
"""Everything at once: 64 threads that load, free, re-pin, drain, ask and serve the same models."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from helpers.system.programs import INCLUDE, LINK, require

STRESS = Path(__file__).parent / "stress" / "stress.cc"


@pytest.fixture(scope="module")
def stress(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stress program, linked with the library as a host is."""
    require("g++")
    program = tmp_path_factory.mktemp("stress") / "stress"
    command = [
        "g++",
        "-std=c++17",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{INCLUDE}",
        str(STRESS),
        "-o",
        str(program),
    ]
    command += [*LINK, "-lpthread"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return program


@pytest.mark.slow
def test_every_answer_is_right_or_a_documented_status(stress: Path, tiny_model: Path) -> None:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [str(stress), str(tiny_model), "5", "64"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=400, env=environment, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    counts = json.loads(ended.stdout)
    assert counts["faults"] == 0
    # It did what it is for.
    for what in (
        "load.OK",
        "run.OK",
        "run_async.OK",
        "run_batch.OK",
        "set_cpuset.OK",
        "ask.OK",
        "cancel.OK",
        "drain.OK",
    ):
        assert counts.get(what, 0) > 0, f"no {what} in {counts}"
