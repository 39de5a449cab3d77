# SPDX-License-Identifier: Apache-2.0
"""Test the Python API: functions named like the commands, and imported late."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import graph_tools


def test_functions_are_not_hidden_by_modules_of_the_same_name() -> None:
    code = (
        "import graph_tools.verbs.inspect, graph_tools.verbs.diff, graph_tools.verification.verifying\n"
        "from graph_tools import diff, inspect, verify\n"
        "print(*(one.__name__ for one in (diff, inspect, verify)), all(map(callable, (diff, inspect, verify))))\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=_root())
    assert answer.stdout.split() == ["diff", "inspect", "verify", "True"]


def test_import_loads_neither_tensorflow_nor_numpy() -> None:
    code = "import sys, graph_tools; print('tensorflow' in sys.modules, 'numpy' in sys.modules, *graph_tools.__all__)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=_root())
    assert answer.stdout.split() == ["False", "False", "cut", "diff", "fuse", "inspect", "optimize", "verify"]


def test_unknown_attributes_of_the_package_are_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        graph_tools.other  # noqa: B018
    assert {"cut", "verify"} <= set(dir(graph_tools))


def _root() -> Path:
    return Path(graph_tools.__file__).parent.parent
