# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from serving_proxy.errors import InvalidError, UnavailableError
from serving_proxy.leadership.shared_store import OtherStoreError, SharedFolder, open_shared_store


def test_object_is_created_once(tmp_path: Path) -> None:
    store = SharedFolder(tmp_path / "shared")
    assert store.get("log/1") is None
    assert store.create("log/1", b"first")
    assert not store.create("log/1", b"second")
    assert store.get("log/1") == b"first"
    store.put("log/1", b"third")
    assert store.get("log/1") == b"third"
    assert store.numbers("log") == [1]
    store.remove("log/1")
    assert store.numbers("log") == []


def test_of_many_that_create_an_object_at_once_one_succeeds(tmp_path: Path) -> None:
    store = SharedFolder(tmp_path / "shared")
    for number in range(20):
        won: list[int] = []
        refused: list[int] = []
        start = threading.Barrier(4)

        def create(name: str, of: int, start: threading.Barrier, won: list[int], refused: list[int]) -> None:
            start.wait()
            (won if store.create(name, str(of).encode() * 1000) else refused).append(of)

        # The folder does not exist yet either.
        named = f"log-{number}/1"
        threads = [threading.Thread(target=create, args=(named, of, start, won, refused)) for of in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = won
        assert len(refused) == 3
        assert store.get(named) == str(winner).encode() * 1000


def test_store_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    store = SharedFolder(tmp_path / "shared")
    (tmp_path / "shared").rename(tmp_path / "gone")
    with pytest.raises(UnavailableError, match="expected the store that proxies share"):
        store.create("log/1", b"")


def test_empty_folder_in_place_of_the_store_is_refused_until_the_store_is_back(tmp_path: Path) -> None:
    shared, away = tmp_path / "shared", tmp_path / "away"
    store = SharedFolder(shared)
    store.create("log/1", b"first")
    # What is seen counts as what is made.
    reader = SharedFolder(shared)
    assert reader.numbers("log") == [1]
    shared.rename(away)
    shared.mkdir()
    for act in (
        lambda: store.create("log/2", b""),
        lambda: store.put("log/1", b""),
        lambda: store.get("log/1"),
        lambda: store.numbers("log"),
        lambda: reader.numbers("log"),
    ):
        with pytest.raises(OtherStoreError, match=r"'log' is no longer there, expected the earlier store"):
            act()
    assert list(shared.iterdir()) == []
    shared.rmdir()
    away.rename(shared)
    assert store.get("log/1") == b"first"
    assert store.create("log/2", b"")


@pytest.mark.parametrize("before", ["no folder", "an empty folder"])
def test_store_that_comes_back_during_a_look_is_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    shared, away = tmp_path / "shared", tmp_path / "away"
    store = SharedFolder(shared)
    store.create("log/1", b"first")
    shared.rename(away)
    if before == "an empty folder":
        shared.mkdir()
    stat = Path.stat

    def stat_and_mount(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        try:
            return stat(path, follow_symlinks=follow_symlinks)
        except FileNotFoundError:
            away.rename(shared)
            raise

    monkeypatch.setattr(Path, "stat", stat_and_mount)
    assert store.get("log/1") == b"first"


@pytest.mark.parametrize("url", ["ftp://x/y", "file://elsewhere/x", "", "hdfs://x/y", "s3:///y"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidError, match="--shared-store"):
        open_shared_store(url)


def test_file_url_is_a_folder(tmp_path: Path) -> None:
    store = open_shared_store(f"file://{tmp_path}/a%20b")
    assert isinstance(store, SharedFolder)
    assert store.folder == tmp_path / "a b"
