# SPDX-License-Identifier: Apache-2.0
"""The C++ unit tests, of runtime and codecs and of kernels and tables: built beside the library and run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from helpers.system.cmake_targets import build_target

PROGRAMS = ["processor_tests", "processor_kernel_tests"]


@pytest.mark.slow
@pytest.mark.timeout(1500)  # the first time, everything is compiled
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_passes(name: str, repository: Path, tmp_path: Path) -> None:
    program = build_target(name, repository) / "tests" / name
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    ended = subprocess.run([program], cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-6000:]
    assert "[  PASSED  ]" in ended.stdout


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_sources_for_thread_sanitizer_are_complete(repository: Path) -> None:
    """`make test-tsan` compiles a part of the library: it has to link, and nobody links it every day."""
    build_target("processor_thread_tests", repository)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", ["processor_fuzz_sources", "processor_bench_sources"])
def test_the_sources_of_fuzzers_and_benchmarks_compile(name: str, repository: Path) -> None:
    build_target(name, repository)
