# SPDX-License-Identifier: Apache-2.0
"""Build targets of CMake that are built on request, as unit tests in C++ are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from helpers.system.build_lock import build_lock
from helpers.system.programs import run_ok, skip_or_fail

BUILD = Path("build") / "release"


def build_target(name: str, repository: Path) -> Path:
    """Build a target of build/release, and return the folder of the build.

    Skips the test if GoogleTest is not installed; fails it in CI.
    """
    if not Path("/usr/include/gtest/gtest.h").exists():
        skip_or_fail("GoogleTest is not installed (libgtest-dev)")
    tools = Path(sys.executable).parent
    configure = [str(tools / "cmake"), "-S", ".", "-B", str(BUILD), "-G", "Ninja", "-DPROCESSOR_TESTS=ON"]
    configure += [f"-DPython_EXECUTABLE={sys.executable}", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"]
    build = [str(tools / "cmake"), "--build", str(BUILD), "--target", name]
    build += ["--parallel", str(len(os.sched_getaffinity(0)))]
    with build_lock():
        for command in (configure, build):
            run_ok(command, cwd=repository, timeout=1400)
    return repository / BUILD
