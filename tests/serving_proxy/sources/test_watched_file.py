# SPDX-License-Identifier: Apache-2.0
"""Files that are followed: what is being written does not count."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving_proxy.errors import InvalidError, NotFoundError
from serving_proxy.sources.watched_file import WatchedFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("first", encoding="utf-8")
    return tmp_path / "file"


def test_a_file_counts_once_two_looks_find_the_same(path: Path) -> None:
    watched = WatchedFile(path, "settings")
    assert watched.read() == "first"
    assert (watched.look(), watched.look()) == (None, None)
    path.write_text("", encoding="utf-8")
    assert watched.look() is None
    path.write_text("sec", encoding="utf-8")
    assert watched.look() is None
    path.write_text("second", encoding="utf-8")
    assert (watched.look(), watched.look(), watched.look()) == (None, "second", None)


def test_what_was_written_and_taken_back_does_not_count(path: Path) -> None:
    watched = WatchedFile(path, "settings")
    watched.read()
    path.write_text("second", encoding="utf-8")
    assert watched.look() is None
    path.write_text("first", encoding="utf-8")
    assert (watched.look(), watched.look()) == (None, None)


def test_a_file_that_cannot_be_read_is_told_of(path: Path) -> None:
    watched = WatchedFile(path, "settings")
    watched.read()
    path.unlink()
    with pytest.raises(NotFoundError):
        watched.look()
    path.mkdir()
    with pytest.raises(InvalidError, match="a folder"):
        watched.look()
    path.rmdir()
    path.write_text("second", encoding="utf-8")
    assert (watched.look(), watched.look()) == (None, "second")
