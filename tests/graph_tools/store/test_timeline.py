# SPDX-License-Identifier: Apache-2.0
"""Test that timelines are read up to their first fault, and that one writer at a time adds segments."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.store import timeline_writer
from graph_tools.store.compaction import compact
from graph_tools.store.delta import Delta
from graph_tools.store.segment import Segment
from graph_tools.store.timeline import Position, TimelineReader, list_segments, list_terms, segment_name, term_name
from graph_tools.store.timeline_writer import TimelineWriter, find_tip
from graph_tools.tensors import ArrayTensor
from helpers.graph_tools.delta_segments import INT64, LINEAGE, ROW_NUMBERS
from helpers.graph_tools.delta_vectors import GOLDEN

EXPECTED = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))["timelines"]
START = Position.start(LINEAGE)


@pytest.mark.parametrize("name", EXPECTED)
def test_golden_timeline_is_read_up_to_its_fault(name: str) -> None:
    expected, folder = EXPECTED[name], GOLDEN / "timelines" / name
    reader, read, fault = TimelineReader(folder, START), [], None
    try:
        for segment in reader:
            read.append(segment.path.name)
    except UnreadableError as error:
        fault = str(error)
    assert read == expected["segments"]
    assert (reader.position.epoch, reader.position.chain.hex(), reader.position.term) == (
        expected["epoch"],
        expected["chain"],
        expected["term"],
    )
    assert (fault is None) == (expected["fault"] is None)
    if fault is not None:
        for text in (str(folder / expected["fault"]["file"]), "expected", *expected["fault"]["mentions"]):
            assert text in fault


def test_golden_timelines_are_all_tested() -> None:
    assert {path.name for path in (GOLDEN / "timelines").iterdir()} == set(EXPECTED)


def test_reader_finds_what_is_published_later(tmp_path: Path) -> None:
    writer = TimelineWriter(tmp_path, START, "trainer 1")
    reader = TimelineReader(tmp_path, START)
    assert reader.next() is None
    writer.publish(Delta((ROW_NUMBERS,)), event_time=5)
    segment = reader.next()
    assert segment is not None
    assert (segment.header.event_time, segment.header.term, reader.position) == (5, 1, writer.position)
    assert reader.next() is None


def test_reader_lists_the_folder_again_if_a_file_disappears(tmp_path: Path) -> None:
    folder = tmp_path / "timeline"
    shutil.copytree(GOLDEN / "timelines" / "three_epochs", folder)
    reader = TimelineReader(folder, START)
    assert reader.next() is not None
    compact(folder, 2, 3)
    assert not (folder / segment_name(2, 2)).exists()
    segment = reader.next()
    assert segment is not None
    assert segment.path.name == segment_name(2, 3)
    assert reader.next() is None


def test_next_writer_continues_at_the_tip_with_a_higher_term(tmp_path: Path) -> None:
    first = TimelineWriter(tmp_path, START, "trainer 1")
    first.publish(Delta((ROW_NUMBERS,)))
    second = TimelineWriter(tmp_path, START, "trainer 2")
    assert (second.term, second.position) == (2, first.position)
    second.publish(Delta())
    assert [segment.header.term for segment in TimelineReader(tmp_path, START)] == [1, 2]
    assert (tmp_path / term_name(2)).read_text() == "trainer 2"


def test_earlier_writer_ends_with_an_error_that_names_the_later_one(tmp_path: Path) -> None:
    first = TimelineWriter(tmp_path, START)
    second = TimelineWriter(tmp_path, START)
    with pytest.raises(ConversionError, match=rf"{term_name(2)}: a writer of term 2, expected none after term 1"):
        first.publish(Delta())
    second.publish(Delta())
    assert [segment.header.term for segment in TimelineReader(tmp_path, START)] == [2]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_writer_goes_on_in_its_term_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "timeline"
    writer = TimelineWriter(folder, START)
    sync, failing = timeline_writer.sync_folder, [True]

    def sync_folder(path: Path) -> None:
        if failing:
            failing.clear()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(path)

    monkeypatch.setattr(timeline_writer, "sync_folder", sync_folder)
    with pytest.raises(ConversionError, match=os.strerror(errno.EIO)):
        writer.publish(Delta((ROW_NUMBERS,)))
    # The segment has its name already.
    assert (writer.position.epoch, len(list_segments(folder))) == (0, 1)
    writer.resume()
    writer.publish(Delta())
    assert (writer.position.epoch, list_terms(folder)) == (2, [1])
    later = TimelineWriter(folder, START)
    with pytest.raises(ConversionError, match=f"{term_name(2)}: a writer of term 2"):
        writer.resume()
    later.publish(Delta())


def test_writer_whose_folder_is_gone_makes_no_other(tmp_path: Path) -> None:
    folder, away = tmp_path / "timeline", tmp_path / "away"
    writer = TimelineWriter(folder, START)
    writer.publish(Delta((ROW_NUMBERS,)))
    folder.rename(away)
    for call in (writer.resume, lambda: writer.publish(Delta())):
        with pytest.raises(UnreadableError, match=f"{folder}: does not exist any more, expected the folder in which"):
            call()
    assert not folder.exists()
    folder.mkdir()
    with pytest.raises(UnreadableError, match=f"{folder}: no {term_name(1)}, expected the folder in which"):
        writer.publish(Delta())
    assert not list(folder.iterdir())
    folder.rmdir()
    away.rename(folder)
    writer.resume()
    writer.publish(Delta())
    assert [segment.header.last_epoch for segment in TimelineReader(folder, START)] == [1, 2]


def test_published_segment_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = TimelineWriter(tmp_path, START), TimelineWriter(tmp_path, START)
    path = second.publish(Delta((ROW_NUMBERS,))).path
    before = path.read_bytes()
    # The first writer was stopped between its check and the publication.
    monkeypatch.setattr(first, "_check_term", lambda: None)
    with pytest.raises(ConversionError, match="exists"):
        first.publish(Delta())
    assert path.read_bytes() == before


def test_writers_that_begin_at_once_get_different_terms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / term_name(1)).write_text("a writer")
    monkeypatch.setattr(timeline_writer, "list_terms", lambda folder: [])
    assert TimelineWriter(tmp_path, START).term == 2


def test_term_is_above_that_of_the_last_segment_if_its_file_is_lost(tmp_path: Path) -> None:
    TimelineWriter(tmp_path, START)
    TimelineWriter(tmp_path, START).publish(Delta())
    for term in list_terms(tmp_path):
        (tmp_path / term_name(term)).unlink()
    assert TimelineWriter(tmp_path, START).term == 3


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP])
def test_segments_are_renamed_on_file_systems_without_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(code, os.strerror(code))

    writer = TimelineWriter(tmp_path, START)
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    path = writer.publish(Delta((ROW_NUMBERS,))).path
    assert Segment(path).header.first_epoch == 1
    monkeypatch.setattr(writer, "position", START)
    with pytest.raises(ConversionError, match="exists"):
        writer.publish(Delta())


def test_invalid_delta_is_not_published(tmp_path: Path) -> None:
    writer = TimelineWriter(tmp_path, START)
    descending = ArrayTensor(np.array([2, 1, 3, 4, 5], np.int64))
    with pytest.raises(ConversionError, match="changed key 1 after 2, expected ascending keys"):
        writer.publish(Delta((type(INT64)("a", "int64", 3, descending, INT64.rows, INT64.deleted),)))
    assert not list_segments(tmp_path)
    assert writer.position == START
    writer.publish(Delta())


def test_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = TimelineWriter(tmp_path, START)
    real, written = os.write, []

    def full(file: int, data: memoryview) -> int:
        written.append(len(data))
        if sum(written) > 300:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ConversionError, match="No space left on device"):
        writer.publish(Delta((ROW_NUMBERS,)))
    monkeypatch.setattr(os, "write", real)
    assert [path.name for path in tmp_path.iterdir()] == [term_name(1)]
    writer.publish(Delta((ROW_NUMBERS,)))


def test_hidden_file_of_a_killed_writer_is_removed_after_a_day(tmp_path: Path) -> None:
    old, new = tmp_path / ".segment.1.a", tmp_path / ".segment.1.b"
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    TimelineWriter(tmp_path, START)
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize("name", ["gap", "overlap", "other_lineage", "truncated"])
def test_writer_refuses_a_timeline_that_it_cannot_continue(tmp_path: Path, name: str) -> None:
    shutil.copytree(GOLDEN / "timelines" / name, tmp_path / "timeline")
    if name == "truncated":
        (tmp_path / "timeline" / segment_name(3, 3)).unlink()
    with pytest.raises(UnreadableError):
        TimelineWriter(tmp_path / "timeline", START)


def test_tip_must_continue_the_state_of_the_model(tmp_path: Path) -> None:
    folder = GOLDEN / "timelines" / "three_epochs"
    tip = find_tip(folder, START)
    assert tip.epoch == 3
    assert find_tip(folder, tip) == tip
    with pytest.raises(UnreadableError, match="another history"):
        find_tip(folder, Position(LINEAGE, 3, bytes(32)))
    with pytest.raises(UnreadableError, match="another history"):
        find_tip(folder, Position(LINEAGE, 2, bytes(32)))
    with pytest.raises(UnreadableError, match="segments up to epoch 3, expected epoch 4"):
        find_tip(folder, Position(LINEAGE, 4, bytes(32)))


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="No such file"):
        TimelineReader(tmp_path / "absent", START).next()
    (tmp_path / "file").touch()
    with pytest.raises(ConversionError, match="exists"):
        TimelineWriter(tmp_path / "file", START)


_WRITER = """
import sys
from pathlib import Path
from graph_tools.store.timeline import Position
from graph_tools.store.timeline_writer import TimelineWriter
from helpers.graph_tools.delta_segments import LINEAGE, SEGMENTS

writer = TimelineWriter(Path(sys.argv[1]), Position.start(LINEAGE))
while True:
    for name in ("empty_epoch", "int64_keys", "several_blocks"):
        writer.publish(SEGMENTS[name][1])
        print("published", flush=True)
"""


def test_killed_writer_leaves_a_timeline_that_others_continue(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), f"{root / 'tests'}"])}
    reader = TimelineReader(tmp_path, START)
    for attempt in range(4):
        command = [sys.executable, "-c", _WRITER, str(tmp_path)]
        with subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"published\n"
            # The writer is somewhere in one of the next publications.
            time.sleep(0.007 * attempt)
            process.kill()
        before = reader.position.epoch
        assert all(segment.header.term == attempt + 1 for segment in reader)
        assert reader.position.epoch > before
    assert find_tip(tmp_path, START) == reader.position
