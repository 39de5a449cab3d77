# SPDX-License-Identifier: Apache-2.0
"""An optimized model with a table of about 1 GB, to be deployed and taken out again while others answer."""

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
    """Answer the folder of the optimized model, made if the cache does not hold it.

    Raises
    ------
    ProgramError
        It could not be made; the message is the output of the program that failed.
    """
    target = cache / "fused" / f"large-{rows}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # The export is as large again, and of no further use.
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
