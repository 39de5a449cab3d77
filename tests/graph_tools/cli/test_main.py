# SPDX-License-Identifier: Apache-2.0
"""What the command says where a package is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("package", "extra"), [("typer", "graph-tools"), ("google_crc32c", "graph-tools")])
def test_missing_package_is_named_with_its_extra(package: str, extra: str, repository: Path, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None; sys.argv = ['graph-tools', 'inspect', {str(tmp_path)!r}]; "
        "from graph_tools.cli import main; main()"
    )
    answer = subprocess.run([sys.executable, "-c", code], cwd=repository, capture_output=True, text=True)
    assert answer.returncode == 2
    assert f"{package} is not installed" in answer.stderr
    assert f"recprocessor[{extra}]" in answer.stderr
    assert "Traceback" not in answer.stderr
