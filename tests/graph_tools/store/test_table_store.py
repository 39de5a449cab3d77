# SPDX-License-Identifier: Apache-2.0
"""Test the store: links, copies, damage, and several writers at the same time."""

import errno
import os
import stat
import threading
import time
from pathlib import Path

import pytest

from graph_tools.errors import ConversionError, UnreadableError, UsageError
from graph_tools.store import TableReader
from graph_tools.store.table_store import TableStore, place_file, place_table
from helpers.models.embedding_tables import spec_of, written


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    return TableStore(tmp_path / "deep" / "store")


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    folder = tmp_path / "assets"
    folder.mkdir()
    return folder


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_artifacts_share_the_inode(store: TableStore, tmp_path: Path) -> None:
    placed = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        placed.append(place_table(spec_of("int64", 101), tmp_path / name, store))
    assert len({file.path.stat().st_ino for file in placed} | {store.path(placed[0].sha256).stat().st_ino}) == 1
    assert not placed[0].notes
    assert not placed[1].notes
    assert files_in(store.folder) == [placed[0].name]
    assert stat.S_IMODE(placed[0].path.stat().st_mode) == 0o444
    again = place_table(spec_of("int64", 101), tmp_path / "a", store)
    assert again.path == placed[0].path
    assert files_in(tmp_path / "a") == [again.name]


def test_without_a_store_the_file_is_in_the_artifact_alone(assets: Path) -> None:
    placed = place_table(spec_of("int64", 101), assets, None)
    assert files_in(assets) == [placed.name]
    assert placed.path.stat().st_nlink == 1
    TableReader(placed.path).check()


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_a_copy_is_reported_if_linking_is_impossible(
    store: TableStore, assets: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    placed = place_table(spec_of("int64", 101), assets, store)
    assert len(placed.notes) == 1
    assert "copied" in placed.notes[0]
    assert os.strerror(code) in placed.notes[0]
    assert placed.path.read_bytes() == store.path(placed.sha256).read_bytes()
    assert stat.S_IMODE(placed.path.stat().st_mode) == 0o444
    assert files_in(assets) == [placed.name]


def test_real_copy_across_file_systems(store: TableStore) -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == store.folder.stat().st_dev:
        pytest.skip("no second file system")
    folder = memory / f"tables-{os.getpid()}"
    folder.mkdir()
    try:
        placed = place_table(spec_of("int64", 101), folder, store)
        assert "copied" in placed.notes[0]
        TableReader(placed.path).check()
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def test_failed_copy_leaves_nothing(store: TableStore, assets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "no link")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    table = store.put(spec_of("int64", 101))
    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConversionError, match="No space left"):
        place_file(table, assets)
    assert not files_in(assets)


@pytest.mark.parametrize(
    ("place_of_damage", "verify", "found"),
    [(16, False, "checksum"), (-1, False, None), (-1, True, "SHA-256"), (None, False, "truncated")],
)
def test_damaged_file_of_the_store(
    tmp_path: Path, place_of_damage: int | None, verify: bool, found: str | None
) -> None:
    file = TableStore(tmp_path / "store").put(spec_of("int64", 101)).path
    good = file.read_bytes()
    raw = bytearray(good[:-1] if place_of_damage is None else good)
    if place_of_damage is not None:
        raw[place_of_damage] ^= 1
    file.unlink()
    file.write_bytes(raw)
    table = TableStore(tmp_path / "store", verify=verify).put(spec_of("int64", 101))
    if found is None:
        assert not table.notes  # a look at the header does not find it
        return
    assert len(table.notes) == 1
    assert found in table.notes[0]
    assert "replaced" in table.notes[0]
    assert file.read_bytes() == good
    assert files_in(tmp_path / "store") == [file.name]


def test_table_in_a_file_is_linked_and_not_written(store: TableStore, assets: Path, tmp_path: Path) -> None:
    source = written(tmp_path, spec_of("string", 101))
    spec = TableReader(source).spec()
    for target in (None, store):
        placed = place_table(spec, assets, target)
        assert placed.path.stat().st_ino == source.stat().st_ino
        assert placed.name == source.name
    assert store.path(placed.sha256).stat().st_ino == source.stat().st_ino
    assert files_in(store.folder) == [source.name]


def test_damaged_source_is_refused(store: TableStore, assets: Path, tmp_path: Path) -> None:
    source = written(tmp_path, spec_of("string", 101))
    raw = bytearray(source.read_bytes())
    raw[-1] ^= 1
    source.unlink()
    source.write_bytes(raw)
    for target in (None, store):
        with pytest.raises(UnreadableError, match="SHA-256"):
            place_table(TableReader(source).spec(), assets, target)
    assert not files_in(assets)
    assert not files_in(store.folder)


def test_writers_at_the_same_time(tmp_path: Path) -> None:
    start, failures = threading.Barrier(4), []

    def work(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        store = TableStore(tmp_path / "store")
        start.wait()
        try:
            for count in range(1, 8):
                TableReader(place_table(spec_of("int64", count), folder, store).path).check()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(files_in(tmp_path / "store")) == 7
    for name in files_in(tmp_path / "store"):
        TableReader(tmp_path / "store" / name).check()


def test_files_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    old, new = tmp_path / ".table.1.aa", tmp_path / ".table.2.bb"
    for file in (old, new):
        file.touch()
    os.utime(old, (time.time() - 100_000,) * 2)
    TableStore(tmp_path)
    assert files_in(tmp_path) == [new.name]


def test_store_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file"):
        TableStore(tmp_path / "file" / "store")
