# SPDX-License-Identifier: Apache-2.0
"""Test that compacted timelines lead to the same state and chain, and that a killed compaction is completed."""

import shutil
from pathlib import Path

import pytest

from graph_tools.errors import ConversionError, UnreadableError, UsageError
from graph_tools.store import compaction
from graph_tools.store.compaction import compact
from graph_tools.store.delta import Delta
from graph_tools.store.segment import Segment
from graph_tools.store.timeline import Position, TimelineReader, list_segments, segment_name
from graph_tools.store.timeline_writer import TimelineWriter
from helpers.graph_tools.delta_segments import LINEAGE, int_keys, table
from helpers.graph_tools.delta_vectors import GOLDEN

START = Position.start(LINEAGE)


def _timeline(folder: Path, epochs: int) -> Position:
    for epoch in range(1, epochs + 1):
        if epoch % 3 == 1:
            writer = TimelineWriter(folder, START)
        entry = table("t", int_keys(1, epoch + 1), 2, int_keys(epoch), seed=epoch) if epoch > 1 else None
        writer.publish(Delta(() if entry is None else (entry,), {}, {"s": epoch}), event_time=epoch)
    return writer.position


def _end(folder: Path) -> Position:
    reader = TimelineReader(folder, START)
    assert list(reader)
    return reader.position


def test_compacted_timeline_has_the_same_chain_and_last_state(tmp_path: Path) -> None:
    tip = _timeline(tmp_path, 7)
    last = Segment(tmp_path / segment_name(7, 7))
    found = compact(tmp_path)
    assert [file.name for file in list_segments(tmp_path)] == [segment_name(1, 7)]
    assert len(found.replaced) == 7
    assert _end(tmp_path) == tip
    header = found.segment.header
    assert (header.term, header.event_time, header.write_time) == (3, 7, last.header.write_time)
    (entry,) = found.segment.delta.tables
    assert (entry.changed.read().tolist(), entry.deleted.read().tolist()) == ([1, 8], [2, 3, 4, 5, 6, 7])
    assert found.segment.delta.streams == {"s": 7}
    assert len(found.segment.delta.chains) == 6


def test_readers_in_the_middle_of_compacted_epochs_continue(tmp_path: Path) -> None:
    tip = _timeline(tmp_path, 7)
    readers = [TimelineReader(tmp_path, START) for _ in range(7)]
    for epoch, reader in enumerate(readers):
        for _ in range(epoch):
            reader.next()
    compact(tmp_path, 2, 4)
    compact(tmp_path)
    for reader in readers:
        assert len(list(reader)) == 1
        assert reader.position == tip


def test_part_of_a_timeline_is_compacted_again_and_again(tmp_path: Path) -> None:
    tip = _timeline(tmp_path, 8)
    compact(tmp_path, 2, 4)
    compact(tmp_path, last=6)
    assert [file.name for file in list_segments(tmp_path)] == [segment_name(*e) for e in ((1, 6), (7, 7), (8, 8))]
    assert _end(tmp_path) == tip


def test_writer_continues_after_a_compaction(tmp_path: Path) -> None:
    _timeline(tmp_path, 3)
    compact(tmp_path)
    TimelineWriter(tmp_path, START).publish(Delta())
    assert _end(tmp_path).epoch == 4


def test_compaction_that_was_killed_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tip = _timeline(tmp_path, 4)
    with monkeypatch.context() as patched:
        patched.setattr(compaction, "_remove_replaced", lambda folder, segment: ())
        compact(tmp_path, last=3)
    assert len(list_segments(tmp_path)) == 5
    assert _end(tmp_path) == tip
    assert len(compact(tmp_path, last=3).replaced) == 3
    assert [file.name for file in list_segments(tmp_path)] == [segment_name(1, 3), segment_name(4, 4)]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ((9, None), "--from 9: no segment of .* begins with this epoch"),
        ((None, 9), "--to 9: no segment of .* ends with this epoch"),
        ((4, 4), "1 segment from epoch 4 to 4, expected two or more"),
        ((4, 3), "0 segment from epoch 4 to 3, expected two or more"),
        ((None, 2), "--to 2: no segment"),
    ],
)
def test_epochs_without_segments_are_refused(
    tmp_path: Path, limits: tuple[int | None, int | None], message: str
) -> None:
    _timeline(tmp_path, 5)
    compact(tmp_path, 1, 3)
    before = list_segments(tmp_path)
    with pytest.raises(UsageError, match=message):
        compact(tmp_path, *limits)
    assert list_segments(tmp_path) == before


@pytest.mark.parametrize("name", ["gap", "duplicate", "reordered", "other_history", "second_writer", "truncated"])
def test_faulty_timeline_is_not_compacted(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "timeline"
    shutil.copytree(GOLDEN / "timelines" / name, folder)
    before = list_segments(folder)
    with pytest.raises(UnreadableError):
        compact(folder)
    assert list_segments(folder) == before


def test_segments_that_contradict_each_other_are_not_compacted(tmp_path: Path) -> None:
    writer = TimelineWriter(tmp_path, START, permit_not_finite=True)
    for dim in (2, 3):
        writer.publish(Delta((table("t", int_keys(1), dim),)))
    with pytest.raises(ConversionError, match=f"{tmp_path}: table 't': keys of kind int64 and dim 3"):
        compact(tmp_path)
    assert len(list_segments(tmp_path)) == 2


def test_folder_without_segments_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="no segments, expected a timeline"):
        compact(tmp_path)
