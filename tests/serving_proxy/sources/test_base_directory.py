# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.proxy_runs import write_model
from serving_proxy.sources.base_directory import BaseDirectory, version_folders


def test_versions_are_folders_with_a_graph(tmp_path: Path) -> None:
    for name in ("3", "0012", "0", "-1", "latest", "7x", "99999999999999999999"):
        write_model(tmp_path / name)
    (tmp_path / "5").mkdir()
    (tmp_path / "6").touch()
    (tmp_path / "8").symlink_to(tmp_path / "3")
    assert version_folders(tmp_path) == {3: tmp_path / "3", 8: tmp_path / "8", 12: tmp_path / "0012"}


def test_numbered_folders_that_are_not_versions_have_a_reason(tmp_path: Path) -> None:
    directory = BaseDirectory(tmp_path)
    assert (directory.look(), directory.empty) == ({}, False)
    assert (directory.look(), directory.empty) == ({}, True)
    for name in ("3", "003", "0", "-1", "latest", "9" * 200):
        write_model(tmp_path / name)
    (tmp_path / "5").mkdir()
    (tmp_path / "6").touch()
    assert (directory.look(), directory.left_out) == ({}, {}), "whoever copies a model is not spoken of"
    assert directory.seen == {3}
    assert [*(directory.look() or {})] == [3]
    cannot = f"is not a version that a request can name, expected 1 to {2**63 - 1}"
    assert directory.left_out == {
        "0": cannot,
        "9" * 200: cannot,
        "3": "has the same number as '003', which is used",
        "5": "has no saved_model.pb yet",
    }
    assert not directory.empty
    write_model(tmp_path / "5")
    directory.look()
    assert "5" not in directory.left_out


def test_a_directory_that_is_not_there_is_not_empty(tmp_path: Path) -> None:
    assert version_folders(tmp_path / "gone") is None
    assert BaseDirectory(tmp_path / "gone").look() is None


def test_a_version_counts_once_its_files_are_at_rest(tmp_path: Path) -> None:
    directory = BaseDirectory(tmp_path)
    assert directory.look() == {}
    write_model(tmp_path / "3")
    assert directory.look() == {}
    (tmp_path / "3" / "variables").mkdir()
    (tmp_path / "3" / "variables" / "data").write_bytes(b"1")
    assert directory.look() == {}
    found = directory.look()
    assert found is not None
    assert {number: folder for number, (folder, _) in found.items()} == {3: tmp_path / "3"}
    (tmp_path / "3" / "variables" / "data").write_bytes(b"12")
    assert directory.look() == {}
    changed = directory.look()
    assert changed is not None
    assert changed[3][1] != found[3][1]
    shutil.rmtree(tmp_path / "3")
    assert directory.look() == {}


@pytest.mark.parametrize("code", [errno.EACCES, errno.ESTALE, errno.EIO])
def test_a_version_that_storage_does_not_list_is_ignored(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path / "3")
    hidden, stat = write_model(tmp_path / "4"), os.stat

    def refuse(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if str(path).startswith(str(hidden)):
            raise OSError(code, os.strerror(code), str(path))
        return stat(path, *args, **options)

    monkeypatch.setattr(os, "stat", refuse)
    assert version_folders(tmp_path) == {3: tmp_path / "3"}
