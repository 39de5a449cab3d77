# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.proxies.proxy_runs import write_model
from serving_proxy.errors import CancelledError, InvalidError
from serving_proxy.gates.fingerprint import Fingerprint, files_of, fingerprint, stamp_of


def found(folder: Path) -> Fingerprint:
    return fingerprint(folder, lambda: False, lambda done, total: None)


def test_equal_files_have_one_hash_wherever_they_are(tmp_path: Path) -> None:
    first, second = write_model(tmp_path / "1"), write_model(tmp_path / "2")
    assert found(first).sha256 == found(second).sha256
    assert found(first).seal == found(first).seal != found(second).seal, "of files, not of what is in them"
    assert found(first).bytes == (first / "saved_model.pb").stat().st_size
    (second / "saved_model.pb").rename(second / "renamed.pb")
    assert found(first).sha256 != found(second).sha256


@pytest.mark.parametrize("change", ["content", "name", "more"])
def test_stamps_tell_changes(tmp_path: Path, change: str) -> None:
    folder = write_model(tmp_path / "1")
    before = stamp_of(folder)
    assert stamp_of(folder) == before
    if change == "content":
        os.utime(folder / "saved_model.pb", (5, 5))
    elif change == "name":
        (folder / "saved_model.pb").rename(folder / "x")
    else:
        (folder / "more").touch()
    assert stamp_of(folder) != before


def test_the_hash_distinguishes_names_from_contents(tmp_path: Path) -> None:
    for place, (first, second) in enumerate([(b"a", b"bc"), (b"ab", b"c")]):
        folder = tmp_path / str(place)
        folder.mkdir()
        (folder / "x").write_bytes(first)
        (folder / "y").write_bytes(second)
    assert found(tmp_path / "0").sha256 != found(tmp_path / "1").sha256


def test_hashing_reports_progress_and_can_be_cancelled(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(9_000_000))
    told: list[tuple[int, int]] = []
    with pytest.raises(CancelledError):
        fingerprint(tmp_path, lambda: len(told) == 2, lambda done, total: told.append((done, total)))
    assert told == [(4_194_304, 9_000_000), (8_388_608, 9_000_000)]


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "gone").symlink_to("nowhere")
    with pytest.raises(InvalidError, match="gone: No such file"):
        found(tmp_path)
    assert stamp_of(tmp_path) == ""


def test_a_link_to_a_folder_above_is_not_walked_again(tmp_path: Path) -> None:
    write_model(tmp_path / "1" / "variables").rename(tmp_path / "1" / "a")
    (tmp_path / "1" / "a" / "up").symlink_to(tmp_path / "1")
    (tmp_path / "1" / "a" / "here").symlink_to(".")
    (tmp_path / "1" / "twice").symlink_to("a")
    (tmp_path / "1" / "z").touch()
    names = [str(path.relative_to(tmp_path / "1")) for path in files_of(tmp_path / "1")]
    assert names == ["z", "a/saved_model.pb", "twice/saved_model.pb"]
