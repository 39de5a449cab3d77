# SPDX-License-Identifier: Apache-2.0
"""The C++ unit tests of tables, optimizers and policies, which need no TensorFlow: built and run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from helpers.system.cmake_targets import build_target


@pytest.mark.slow
@pytest.mark.timeout(1500)  # the first time, everything is compiled
def test_program_passes(repository: Path, tmp_path: Path) -> None:
    program = build_target("elastic_training_tests", repository) / "tests" / "elastic_training_tests"
    ended = subprocess.run([program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-6000:]
    assert "[  PASSED  ]" in ended.stdout
