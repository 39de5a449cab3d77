# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
from pathlib import Path

from load_tests._environment import describe_environment


def _git(root: Path, *words: str) -> str:
    settings = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.invalid")
    command = ["git", "-C", str(root), *settings, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_only_changes_of_tracked_files_modify_a_commit(tmp_path: Path) -> None:
    _git(tmp_path, "init", "--quiet")
    source = tmp_path / "source.py"
    source.write_text("a = 1\n", encoding="utf-8")
    _git(tmp_path, "add", "source.py")
    _git(tmp_path, "commit", "--quiet", "--message", "One")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").touch()
    found = describe_environment(tmp_path)
    assert (found["commit"], found["modified"]) == (_git(tmp_path, "rev-parse", "HEAD"), False)
    source.write_text("a = 2\n", encoding="utf-8")
    assert describe_environment(tmp_path)["modified"] is True
    _git(tmp_path, "add", "source.py")
    assert describe_environment(tmp_path)["modified"] is True


def test_outside_a_repository_there_is_no_commit(tmp_path: Path) -> None:
    found = describe_environment(tmp_path)
    assert (found["commit"], found["modified"]) == (None, None)
