# SPDX-License-Identifier: Apache-2.0
"""Test what `make build` shows while pip installs packages, with what pip prints."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

FILTER = Path(__file__).parents[2] / "tools" / "pip_progress.sed"
PRINTED = """\
Collecting tensorflow-cpu==2.21.*
  Downloading tensorflow_cpu-2.21.0-cp311-cp311-manylinux_2_27_x86_64.whl.metadata (4.4 kB)
Requirement already satisfied: six>=1.12.0 in ./.venv/lib (from tensorflow-cpu) (1.17.0)
Using cached tensorflow_cpu-2.21.0-cp311-cp311-manylinux_2_27_x86_64.whl (263.1 MB)
Downloading numpy-2.3.5-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl (16.9 MB)
Downloading pip-26.3-py3-none-any.whl (2.0 MB)
Installing collected packages: numpy, tensorflow-cpu
Successfully installed numpy-2.3.5 tensorflow-cpu-2.21.0
"""
SHOWN = """\
  Using cached tensorflow_cpu, 263.1 MB
  Downloading numpy, 16.9 MB
  Unpacking all packages
"""


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (1, 1), (2, 1), (130, 1)])
def test_large_files_are_shown_and_the_status_is_kept(status: int, expected: int) -> None:
    given = f"{PRINTED}pip: {status}\n"
    found = subprocess.run(["sed", "-unf", FILTER], input=given, capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr, found.returncode) == (SHOWN, "", expected)
