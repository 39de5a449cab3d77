# SPDX-License-Identifier: Apache-2.0
"""oneDNN's kernels for requests of any number of rows exist when a model has been loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graph_tools import optimize
from helpers.graph_tools.deep_models import build_deep

#: In a process of its own, because oneDNN reads ONEDNN_VERBOSE only once.
PROGRAM = """
import sys
import numpy as np
from processor import Model
with Model(sys.argv[1], {"session_num": 2, "warmup_runs": 1}) as model:
    print(f"READY in {model.info['precision']}.", flush=True)
    for rows in (1, 4, 5, 8, 9, 17, 33, 64, 127, 128, 300):
        model.run({"x": np.ones((rows, 32), np.float32)})
print("DONE", flush=True)
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deep")
    optimize(build_deep(folder / "model"), folder / "fused", precision="bf16", samples=8)
    return folder / "fused"


def test_requests_of_any_size_find_their_kernels_made(artifact: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(artifact)],
        env={**os.environ, "ONEDNN_VERBOSE": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "DONE" in done.stdout, done.stderr
    if "READY in bf16." not in done.stdout:
        pytest.skip("the CPU has no fast bf16 arithmetic")
    loading, requests = (
        [line for line in part.splitlines() if ",create:" in line] for part in done.stdout.split("READY")
    )
    # Two layers of bf16 have a kernel for each eighth number of rows up to 128; the last two layers stay float.
    assert len([line for line in loading if ",matmul," in line]) >= 2 * 16, done.stdout
    assert requests == []
