# SPDX-License-Identifier: Apache-2.0
"""Check that `tools/check_tree.py` finds every kind of fault and accepts correct files."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from helpers.system.tool_modules import load_tool

SPDX = "# SPDX-License-Identifier: Apache-2.0\n"


@pytest.fixture(scope="module")
def check_tree() -> ModuleType:
    return load_tool("check_tree")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("good.py", SPDX + "x = 1\n", None),
        ("header.c", "/* SPDX-License-Identifier: Apache-2.0 */\n", None),
        ("script.sh", "#!/bin/sh\n" + SPDX, None),
        ("temporary.py", SPDX + "x = 'checkpoint-XXXXXX'\n", None),
        ("long.md", "x\n" * 1000, None),
        ("bare.py", "x = 1\n", "no line 'SPDX-License-Identifier: Apache-2.0'"),
        ("long.py", SPDX + "x = 1\n" * 450, "451 lines, expected at most 450"),
        ("unfinished.py", SPDX + "# TO" + "DO: more\n", "TO" + "DO found"),
        ("unfinished.cc", "// SPDX-License-Identifier: Apache-2.0\n// FIX" + "ME\n", "FIX" + "ME found"),
        ("stub.py", SPDX + "raise Not" + "ImplementedError\n", "ImplementedError found"),
        ("data.bin", "x" * (200 * 1024 + 1), "204801 bytes, expected at most 204800"),
    ],
)
def test_faults_in_files_are_found(
    check_tree: ModuleType, tmp_path: Path, name: str, text: str, expected: str | None
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    found = list(check_tree.faults(path, tmp_path))
    if expected is None:
        assert found == []
    else:
        (fault,) = found
        assert fault.startswith(name)
        assert expected in fault


def test_machine_specific_path_is_found(check_tree: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text(f"see {Path.home()}/notes\n", encoding="utf-8")
    (fault,) = check_tree.faults(path, tmp_path)
    assert "expected no path of this machine" in fault


def test_files_of_the_checkout_are_listed(check_tree: ModuleType, repository: Path) -> None:
    files = check_tree.tracked_files()
    assert repository / "pyproject.toml" in files
    assert not [path for path in files if ".venv" in path.parts]
