# SPDX-License-Identifier: Apache-2.0
"""Test that folders appear complete or not at all, and that files of dead processes are removed."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from graph_tools.errors import ConversionError, UsageError
from graph_tools.verbs.staging import check_place, staged


def _write(folder: Path) -> None:
    folder.mkdir()
    (folder / "file").write_text("whole")


def test_folder_appears_when_the_block_ends(tmp_path: Path) -> None:
    place = tmp_path / "new" / "out"
    with staged(place) as folder:
        assert folder.parent.parent == place.parent
        _write(folder)
        assert not place.exists()
    assert [path.name for path in place.parent.iterdir()] == ["out"]
    assert (place / "file").read_text() == "whole"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_no_file_is_left_after_an_error(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), staged(tmp_path / "a" / "b" / "out") as folder:
        _write(folder)
        raise error
    assert list(tmp_path.iterdir()) == []


def test_parent_folders_with_content_are_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError), staged(tmp_path / "a" / "b" / "out"):
        (tmp_path / "a" / "other").write_text("")
        raise ValueError
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "other"]


def test_errors_name_the_place(tmp_path: Path) -> None:
    place = tmp_path / "out"
    with pytest.raises(ConversionError, match=rf"^{place}/x: full, expected room$"), staged(place) as folder:
        raise ConversionError(f"{folder}/x: full, expected room")
    message = rf"^{place}/saved_model.pb: No such file.*, expected room"
    with pytest.raises(ConversionError, match=message), staged(place) as folder:
        (folder / "saved_model.pb").write_bytes(b"")


def test_full_disk_is_a_failed_conversion(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=rf"^{tmp_path}/out: No space left"), staged(tmp_path / "out"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(ConversionError, match=rf"^{tmp_path}/out/x: No space left"), staged(tmp_path / "out") as folder:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "source", None, str(folder / "x"))


def test_errors_about_other_files_are_left_alone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), staged(tmp_path / "out"):
        (tmp_path / "elsewhere").read_bytes()


def test_a_target_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    place = tmp_path / "out"
    with pytest.raises(ConversionError, match=r"not empty"), staged(place) as folder:
        _write(folder)
        place.mkdir()
        (place / "theirs").write_text("")
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "theirs"]


def test_abandoned_folders_are_removed_and_others_are_not(tmp_path: Path) -> None:
    abandoned, empty = tmp_path / ".out.0123abcd", tmp_path / ".out.00000000"
    kept = [tmp_path / ".out.something", tmp_path / ".other.0123abcd", tmp_path / ".out.11111111"]
    for folder in (abandoned / "out", empty, *kept, kept[2] / "precious", tmp_path / ".out.22222222" / "out"):
        folder.mkdir(parents=True, exist_ok=True)
    (abandoned / "out" / "half").write_text("")
    held = os.open(tmp_path / ".out.22222222", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with staged(tmp_path / "out") as folder:
        _write(folder)
    os.close(held)
    assert {path.name for path in tmp_path.iterdir()} == {"out", ".out.22222222", *(path.name for path in kept)}


def test_invalid_targets_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for place, message in (
        (tmp_path / "file", "already exists"),
        (source, "already exists"),
        (tmp_path / "link", "already exists"),
        (source / "a" / "out", "is inside the source"),
        (tmp_path / "file" / "out", r"file is a file, expected a folder"),
    ):
        with pytest.raises(UsageError, match=message):
            check_place(place, source)
    check_place(tmp_path / "a" / "b", source)
    assert not (tmp_path / "a").exists()


def test_parent_that_may_not_be_written_to(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(UsageError, match=r"no permission to write to .*closed, expected a folder"):
        check_place(tmp_path / "closed" / "out", tmp_path / "source")


def test_parent_that_the_system_refuses() -> None:
    with pytest.raises(UsageError, match=r"/proc/out: .*expected permission"), staged(Path("/proc/out")):
        pass
