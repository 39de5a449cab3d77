# SPDX-License-Identifier: Apache-2.0
"""Test the Python API: functions named like the commands, and imported late."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import graph_tools


def test_functions_are_not_hidden_by_modules_of_the_same_name() -> None:
    code = (
        "import graph_tools.verbs.inspect, graph_tools.verbs.diff, graph_tools.verification.verifying\n"
        "from graph_tools import diff, inspect, verify\n"
        "print(*(verb.__name__ for verb in (diff, inspect, verify)), all(map(callable, (diff, inspect, verify))))\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=_root())
    assert answer.stdout.split() == ["diff", "inspect", "verify", "True"]


def test_import_loads_neither_tensorflow_nor_numpy() -> None:
    code = "import sys, graph_tools; print('tensorflow' in sys.modules, 'numpy' in sys.modules, *graph_tools.__all__)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=_root())
    names = ["Publisher", "compress", "convert", "cut", "diff", "fuse", "inspect", "optimize", "verify"]
    assert answer.stdout.split() == ["False", "False", *names]


def test_unknown_attributes_of_the_package_are_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        graph_tools.other  # noqa: B018
    assert {"cut", "verify"} <= set(dir(graph_tools))


@pytest.mark.parametrize("function", [graph_tools.cut, graph_tools.fuse, graph_tools.optimize])
def test_signatures_and_docstrings_list_all_arguments(function: Any) -> None:
    parameters = inspect.signature(function).parameters
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values())
    shared = {"requests", "samples", "tolerance", "dry_run", "check", "accept_weak_proof", "seed", "op_library"}
    assert shared | {"progress"} <= parameters.keys()
    assert (parameters["samples"].default, parameters["seed"].default, parameters["check"].default) == (32, 0, True)
    if function is not graph_tools.optimize:
        assert not [name for name in parameters if name not in function.__doc__]
    with pytest.raises(TypeError, match="'sample'"):
        function("in", "out", sample=3)


def _root() -> Path:
    return Path(graph_tools.__file__).parent.parent
