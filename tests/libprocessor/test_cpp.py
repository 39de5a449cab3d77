# SPDX-License-Identifier: Apache-2.0
"""The C++ unit tests, of runtime and codecs and of kernels and tables: built beside the library and run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.system.build_lock import build_lock
from helpers.system.programs import run_ok

BUILD = Path("build") / "release"
PROGRAMS = ["processor_tests", "processor_kernel_tests"]


def build_program(name: str, repository: Path) -> None:
    if not Path("/usr/include/gtest/gtest.h").exists():
        if os.environ.get("CI") == "true":
            pytest.fail("GoogleTest: not installed (libgtest-dev), and CI=true")
        pytest.skip("GoogleTest is not installed (libgtest-dev)")
    tools = Path(sys.executable).parent
    configure = [str(tools / "cmake"), "-S", ".", "-B", str(BUILD), "-G", "Ninja", "-DPROCESSOR_TESTS=ON"]
    configure += [f"-DPython_EXECUTABLE={sys.executable}", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"]
    build = [str(tools / "cmake"), "--build", str(BUILD), "--target", name]
    build += ["--parallel", str(len(os.sched_getaffinity(0)))]
    with build_lock():
        for command in (configure, build):
            run_ok(command, cwd=repository, timeout=1400)


@pytest.mark.slow
@pytest.mark.timeout(1500)  # the first time, everything is compiled
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_passes(name: str, repository: Path, tmp_path: Path) -> None:
    build_program(name, repository)
    program = repository / BUILD / "tests" / name
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    ended = subprocess.run([program], cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-6000:]
    assert "[  PASSED  ]" in ended.stdout


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_sources_for_thread_sanitizer_are_complete(repository: Path) -> None:
    """`make test-tsan` compiles a part of the library: it has to link, and nobody links it every day."""
    build_program("processor_thread_tests", repository)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_sources_of_the_fuzzers_compile(repository: Path) -> None:
    build_program("processor_fuzz_sources", repository)
