# SPDX-License-Identifier: Apache-2.0
"""Create an optimized model with a table of about 1 GB, to deploy and remove it while others serve requests."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from load_tests._programs import ROOT, ProgramError

__all__ = ["ROWS", "ensure_large_model"]

#: 16 floats, a key, and their share of the index: 82 bytes each.
ROWS = 12_200_000


def ensure_large_model(cache: Path, library: Path, rows: int = ROWS) -> Path:
    """Return the folder of the optimized model; create it if the cache does not contain it.

    Raises
    ------
    ProgramError
        If it could not be created; the message is the output of the failed program.
    """
    target = cache / "fused" / f"large-{rows}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # The export has the same size and is not needed any more.
    scratch = Path(tempfile.mkdtemp(prefix=".large-", dir=target.parent))
    try:
        export, made = scratch / "export", scratch / "made"
        _run("load_tests.workloads.big_table", str(export), "--rows", str(rows))
        _run("graph_tools", "optimize", str(export), str(made), "--precision", "fp32", "--op-library", str(library))
        made.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _run(module: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise ProgramError(module, done.returncode, done.stdout + done.stderr)
