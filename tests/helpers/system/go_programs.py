# SPDX-License-Identifier: Apache-2.0
"""Build the programs of `make host-go` when a test first needs them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from helpers.system.build_lock import build_lock
from helpers.system.programs import ROOT, require, run_ok

FOLDER = ROOT / "build" / "host-go"


@cache
def go_program(name: str) -> Path:
    """Return `recprocessor-host`, `loadgen` or `client-example`; without Go the test is skipped, but fails in CI."""
    require("go", "cc", "make")
    with build_lock():
        # The library exists: running the tests requires that it was built.
        run_ok(["make", "--no-print-directory", "-o", "lib", "host-go"], cwd=ROOT, timeout=900)
    return FOLDER / name
