# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from serving_proxy.errors import ExhaustedError
from serving_proxy.state_dir.desired import DesiredFile

BODY = {"schema": 1, "models": {}}
OTHER = {"schema": 1, "models": {"m": {"baseline": 1, "versions": {"1": {"path": "/x"}}}}}


def read(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "desired.json").read_bytes())
    return found


def test_the_generation_rises_with_each_change_only(tmp_path: Path) -> None:
    file = DesiredFile(tmp_path)
    assert [file.write(body) for body in (BODY, BODY, OTHER, BODY)] == [True, False, True, True]
    assert read(tmp_path) == {**BODY, "generation": 3}


def test_the_generation_continues_after_a_restart(tmp_path: Path) -> None:
    DesiredFile(tmp_path).write(OTHER)
    file = DesiredFile(tmp_path)
    assert not file.write(OTHER)
    assert file.write(BODY)
    assert read(tmp_path)["generation"] == 2


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"null", b'{"generation": "x"}'])
def test_a_damaged_file_is_written_again_above_what_hosts_know(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "desired.json").write_bytes(damage)
    assert DesiredFile(tmp_path).write(BODY, known_generation=41)
    assert read(tmp_path)["generation"] == 42


def test_a_file_that_vanished_is_written_again(tmp_path: Path) -> None:
    file = DesiredFile(tmp_path)
    file.write(BODY)
    (tmp_path / "desired.json").unlink()
    assert file.write(BODY)
    assert read(tmp_path)["generation"] == 2


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    file = DesiredFile(tmp_path)
    file.write(BODY)
    # A folder in the way: root may write everywhere. The room that is kept is not enough then.
    (tmp_path / ".desired.json.new").mkdir()
    (tmp_path / ".desired.json.spare").unlink()
    with pytest.raises(ExhaustedError, match="expected to write"):
        file.write(OTHER)
    assert read(tmp_path) == {**BODY, "generation": 1}
    os.rmdir(tmp_path / ".desired.json.new")
    assert file.write(OTHER)
    assert read(tmp_path)["generation"] == 2


def test_without_room_for_another_file_it_is_written_into_the_one_that_is_kept(tmp_path: Path) -> None:
    file = DesiredFile(tmp_path)
    file.write(BODY)
    (tmp_path / ".desired.json.new").mkdir()
    for number in (2, 3):
        assert file.write(OTHER if number == 2 else BODY)
        assert read(tmp_path)["generation"] == number
        assert (tmp_path / "desired.json").stat().st_size < 65536
        assert (tmp_path / ".desired.json.spare").stat().st_size == 65536


def test_readers_never_see_an_incomplete_file(tmp_path: Path) -> None:
    file = DesiredFile(tmp_path)
    inodes = set()
    for body in (BODY, OTHER, BODY):
        file.write(body)
        inodes.add(os.stat(tmp_path / "desired.json").st_ino)
    assert len(inodes) > 1
    assert sorted(os.listdir(tmp_path)) == [".desired.json.spare", "desired.json"]
