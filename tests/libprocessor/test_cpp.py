# SPDX-License-Identifier: Apache-2.0
"""The C++ unit tests, of runtime and codecs and of kernels and tables: built beside the library and run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from build_lock import build_lock
from host_support import run_ok

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
def test_program(name: str, repository: Path, tmp_path: Path) -> None:
    build_program(name, repository)
    program = repository / BUILD / "tests" / name
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    ended = subprocess.run([program], cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-6000:]
    assert "[  PASSED  ]" in ended.stdout


def objects_of(programs: Iterable[str], repository: Path) -> dict[str, Path]:
    """Return the objects that programs link, by source: any target may have compiled them."""
    ninja = Path(sys.executable).parent / "ninja"
    inputs = run_ok([ninja, "-C", repository / BUILD, "-t", "inputs", *programs]).splitlines()
    found = (re.fullmatch(r"CMakeFiles/[^/]+\.dir/(.+\.cc)\.o", line.strip()) for line in inputs)
    return {match[1]: repository / BUILD / match[0] for match in found if match}


def symbols_of(objects: Iterable[Path]) -> tuple[set[str], set[str]]:
    """Answer what objects define of the library, and what they need of it."""
    defined, needed = set(), set()
    for line in run_ok(["nm", "--format=posix", *objects]).splitlines():
        symbol, *more = line.split()
        if "9processor" in symbol and more:
            (needed if more[0] == "U" else defined).add(symbol)
    return defined, needed


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_sources_for_thread_sanitizer_are_complete(repository: Path) -> None:
    """`make test-tsan` compiles a part of the library: it has to link, and nobody links it every day."""
    for name in PROGRAMS:
        build_program(name, repository)
    program = (repository / "cmake" / "tests.cmake").read_text().partition("add_executable(processor_thread_tests")[2]
    sources = re.findall(r"[\w/]+\.cc", program.partition(")")[0])
    compiled = objects_of(PROGRAMS, repository)
    assert set(sources) - compiled.keys() == set()
    objects = {source: compiled[source] for source in sources}
    assert len(objects) > 20
    defined, needed = symbols_of(objects.values())
    assert needed - defined == set()
    # One is missed.
    del objects["libprocessor/src/runtime/placed_threads.cc"]
    assert needed - symbols_of(objects.values())[0]
