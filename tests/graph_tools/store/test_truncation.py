# SPDX-License-Identifier: Apache-2.0
"""Test that faulty segments are withdrawn, and that others can be published in their place."""

from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import ConversionError, UnreadableError, UsageError
from graph_tools.store.compaction import compact
from graph_tools.store.delta import Delta, TableDelta
from graph_tools.store.known_weights import KnownWeights, read_weights, write_weights
from graph_tools.store.segment import Segment
from graph_tools.store.timeline import Position, TimelineReader, list_segments
from graph_tools.store.timeline_writer import TimelineWriter
from graph_tools.store.truncation import truncate
from graph_tools.tensors import ArrayTensor
from helpers.graph_tools.delta_segments import LINEAGE, floats, int_keys, strings, table

START = Position.start(LINEAGE)


@pytest.fixture
def timeline(tmp_path: Path) -> Path:
    """A timeline with epochs 1 to 4."""
    writer = TimelineWriter(tmp_path, START)
    for epoch in range(1, 5):
        writer.publish(Delta(variables={"step": ArrayTensor(np.float32(epoch).reshape(()))}))
    return tmp_path


def _names(folder: Path) -> list[str]:
    return [file.name for file in list_segments(folder)]


def _damage(path: Path) -> None:
    damaged = bytearray(path.read_bytes())
    damaged[300] ^= 1
    path.write_bytes(damaged)


def _last_epoch(folder: Path) -> int:
    reader = TimelineReader(folder, START)
    assert len(list(reader)) == len(_names(folder))
    return reader.position.epoch


@pytest.mark.parametrize("damaged", [1, 3, 4])
def test_what_follows_the_first_fault_is_withdrawn_and_can_be_published_again(timeline: Path, damaged: int) -> None:
    names = _names(timeline)
    _damage(timeline / names[damaged - 1])
    found = truncate(timeline)
    assert (found.epoch, found.term) == (damaged - 1, 2)
    assert [path.name for path in found.withdrawn] == [f"{name}.withdrawn-2" for name in reversed(names[damaged - 1 :])]
    assert all(path.is_file() for path in found.withdrawn), "they can still be inspected"
    writer = TimelineWriter(timeline, START)
    assert writer.position.epoch == damaged - 1
    writer.publish(Delta())
    assert _last_epoch(timeline) == damaged


def test_a_given_epoch_stays_the_last_one(timeline: Path) -> None:
    assert truncate(timeline, 3).epoch == 3
    assert _last_epoch(timeline) == 3
    assert truncate(timeline, 0).epoch == 0
    assert _names(timeline) == []


def test_the_present_writer_is_stopped(timeline: Path) -> None:
    writer = TimelineWriter(timeline, START)
    truncate(timeline, 3)
    with pytest.raises(ConversionError, match="a writer of term 3, expected none after term 2"):
        writer.publish(Delta())


def test_only_epochs_with_which_a_segment_ends_are_accepted(timeline: Path) -> None:
    compact(timeline, 1, 2)
    before = sorted(timeline.iterdir())
    for epoch in (1, 4, 9):
        with pytest.raises(UsageError, match=f"--to {epoch}: no epoch of .* expected one of 0 to 3"):
            truncate(timeline, epoch)
    with pytest.raises(UsageError, match="no fault up to epoch 4, expected --to EPOCH"):
        truncate(timeline)
    assert sorted(timeline.iterdir()) == before
    (timeline / "empty").mkdir()
    with pytest.raises(UnreadableError, match="no segments, expected a timeline"):
        truncate(timeline / "empty")


def test_weights_of_withdrawn_epochs_are_forgotten(timeline: Path) -> None:
    write_weights(timeline, [KnownWeights(epoch, "00", "11") for epoch in (2, 3, 4)])
    truncate(timeline, 2)
    assert [state.epoch for state in read_weights(timeline)] == [2]


def test_a_writer_that_finds_a_damaged_segment_names_the_way_back(timeline: Path) -> None:
    _damage(timeline / _names(timeline)[-1])
    with pytest.raises(UnreadableError, match=f"checksum.*; `graph-tools delta truncate {timeline}` withdraws"):
        TimelineWriter(timeline, START)


NAN_ROWS = table("items", int_keys(3, 7), 2, seed=1)
NAN_ROWS.rows.read()[1, 0] = np.nan


@pytest.mark.parametrize(
    ("delta", "reason"),
    [
        (Delta((NAN_ROWS,)), "table 'items': nan in the row of key 7"),
        (Delta((table("users", strings(b"a", b"b"), 2),)), "table 'users': nan in the row of key 'a'"),
        (
            Delta(
                (
                    TableDelta(
                        "d",
                        "int64",
                        1,
                        int_keys(),
                        ArrayTensor(floats(0, 1)),
                        int_keys(),
                        np.array([0, 5], np.uint32),
                        np.array([[1], [-np.inf]], np.float32),
                    ),
                )
            ),
            "table 'd': -inf in default row 5",
        ),
        (Delta(variables={"w": ArrayTensor(np.array([[0, 1], [2, np.inf]], np.float32))}), r"'w': inf at \[1, 1\]"),
        (Delta(variables={"b": ArrayTensor(np.array(np.nan, np.float32))}), r"variable 'b': nan at \[\]"),
    ],
)
def test_numbers_that_are_not_finite_are_published_only_on_request(tmp_path: Path, delta: Delta, reason: str) -> None:
    writer = TimelineWriter(tmp_path, START)
    with pytest.raises(ConversionError, match=f"{tmp_path}: epoch 1: .*{reason}, expected a finite number"):
        writer.publish(delta)
    assert _names(tmp_path) == []
    assert writer.publish(Delta()).header.first_epoch == 1, "the writer goes on"
    permitting = TimelineWriter(tmp_path, START, permit_not_finite=True)
    assert isinstance(permitting.publish(delta), Segment)
