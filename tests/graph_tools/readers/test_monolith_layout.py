# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from graph_tools.errors import UnreadableError
from graph_tools.readers.monolith_layout import find_entry, find_servers


def make(*paths: Path) -> None:
    for path in paths:
        path.mkdir(parents=True)
        (path / "saved_model.pb").write_bytes(b"")


def test_entries(tmp_path: Path) -> None:
    make(tmp_path / "entry" / "9", tmp_path / "entry" / "10", tmp_path / "ps_0" / "10")
    (tmp_path / "entry" / "11").mkdir()
    assert find_entry(tmp_path) == find_entry(tmp_path / "entry") == tmp_path / "entry" / "10"
    assert find_entry(tmp_path / "entry" / "9") == tmp_path / "entry" / "9"
    assert find_servers(tmp_path / "entry" / "10") == {0: tmp_path / "ps_0" / "10"}
    with pytest.raises(UnreadableError, match="ps_0: 10, expected version 9, as"):
        find_servers(tmp_path / "entry" / "9")


def test_without_versions(tmp_path: Path) -> None:
    make(tmp_path / "entry", tmp_path / "ps_0", tmp_path / "ps_1")
    (tmp_path / "ps_x").mkdir()
    assert find_entry(tmp_path) == tmp_path / "entry"
    assert find_servers(tmp_path / "entry") == {0: tmp_path / "ps_0", 1: tmp_path / "ps_1"}
    (tmp_path / "ps_1" / "saved_model.pb").unlink()
    with pytest.raises(UnreadableError, match="ps_1: no SavedModel, expected a SavedModel, as"):
        find_servers(tmp_path / "entry")


def test_other_folders(tmp_path: Path) -> None:
    make(tmp_path / "model", tmp_path / "model" / "entry")
    assert find_entry(tmp_path / "model") == tmp_path / "model"
    assert find_entry(tmp_path) == tmp_path
    assert find_entry(tmp_path / "gone") == tmp_path / "gone"
    assert find_servers(tmp_path / "model") == {}
