# SPDX-License-Identifier: Apache-2.0
"""Test that increments of training systems become deltas, and that damaged ones are refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.readers import read_model
from graph_tools.readers.increments import find_increment, read_increment
from graph_tools.readers.lineage import find_position
from graph_tools.store.timeline import TimelineReader
from graph_tools.verbs.cut import cut
from graph_tools.verbs.delta.make import make_delta
from helpers.graph_tools.stock_answers import answers
from load_tests.workloads.sparse_exports import (
    Export,
    deeprec_lookup,
    deeprec_table,
    partitioned,
    rows_for,
    tfplus_lookup,
    tfplus_table,
)

KEYS = np.array([3, 1000, 7, -2, 2001], np.int64)
ROWS = np.arange(1, 11, dtype=np.float32).reshape(5, 2) / 8
NEW_KEYS, NEW_ROWS = np.array([7, 8], np.int64), np.array([[5, 6], [7, 8]], np.float32)
WEIGHTS = np.array([[3.0], [4.0]], np.float32)
ASKED = np.array([7, 8, 2001, 0, 3, 1000, -2], np.int64)


def _save(prefix: Path, tensors: Mapping[str, np.ndarray]) -> Path:
    import tensorflow as tf

    prefix.parent.mkdir(parents=True, exist_ok=True)
    names = sorted(tensors)
    values = [tf.constant(tensors[name]) for name in names]
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)
    return prefix


def _deeprec(path: Path) -> Path:
    export = Export()
    handle = deeprec_table(export, "item_emb", KEYS, ROWS)
    return export.finish(path, [deeprec_lookup(export, handle, export.input("key"))], 2)


def _incremental(
    keys: np.ndarray = NEW_KEYS, rows: np.ndarray = NEW_ROWS, name: str = "item_emb"
) -> dict[str, np.ndarray]:
    return {
        f"{name}-sparse_incr_keys": keys,
        f"{name}-sparse_incr_values": rows,
        f"{name}-sparse_incr_versions": np.ones(len(keys), np.int64),
        f"{name}-sparse_incr_freqs": np.ones(len(keys), np.int64),
        f"{name}-incr_partition_offset": np.zeros(1001, np.int32),
        "dense/w": WEIGHTS,
    }


def _expected(keys: dict[int, list[float]]) -> np.ndarray:
    return rows_for(ASKED, np.array(list(keys)), np.array(list(keys.values()), np.float32))


def test_incremental_checkpoints_of_deeprec_become_epochs(tmp_path: Path) -> None:
    export, timeline = _deeprec(tmp_path / "model"), tmp_path / "timeline"
    full = export / "variables" / "variables"
    first = _save(tmp_path / ".incremental_checkpoint" / "incremental_checkpoint-10", _incremental())
    keys, rows = np.array([8, 7, -2], np.int64), np.array([[7, 8], [9, 9], [0, 1]], np.float32)
    second = _save(tmp_path / ".incremental_checkpoint" / "incremental_checkpoint-20", _incremental(keys, rows))
    for increment in (first, second):
        make_delta(full, increment, timeline, model=export)
    segments = list(TimelineReader(timeline, find_position(export, full)))
    found = [{entry.name: entry.changed.read().tolist() for entry in segment.delta.tables} for segment in segments]
    # An increment has all changes since the full checkpoint; key 8 and the weights are the same in both.
    assert found == [{"dense/w": [0, 1], "item_emb": [7, 8]}, {"item_emb": [-2, 7]}]
    cut(export, tmp_path / "out", timeline=timeline, checkpoint=full, accept_weak_proof=True)
    state = dict(zip(KEYS.tolist(), ROWS.tolist(), strict=True)) | {8: [7, 8], 7: [9, 9], -2: [0, 1]}
    served = answers(tmp_path / "out", {"key": ASKED})
    np.testing.assert_array_equal(served["rows"], _expected(state))
    np.testing.assert_allclose(served["score"], 1 / (1 + np.exp(-_expected(state) @ WEIGHTS)), rtol=1e-5)


def test_next_full_checkpoint_continues_after_increments(tmp_path: Path) -> None:
    export, timeline = _deeprec(tmp_path / "model"), tmp_path / "timeline"
    full = export / "variables" / "variables"
    increment = _save(tmp_path / "incr-10", _incremental())
    make_delta(full, increment, timeline, model=export)
    # Key 7 has its first row again, and key 8 was evicted, which no increment says.
    make_delta(full, full, timeline, model=export)
    last = list(TimelineReader(timeline, find_position(export, full)))[-1].delta.tables[-1]
    assert (last.changed.read().tolist(), last.deleted.read().tolist()) == ([7], [8])
    np.testing.assert_array_equal(last.rows.read(), ROWS[2:3])


def test_parts_of_a_table_and_rows_of_variables(tmp_path: Path) -> None:
    export = Export()
    ids = export.input("key")
    of_part = KEYS % 2 == 1
    handles = [
        deeprec_table(
            export, f"emb/part_{part}", KEYS[of_part == bool(part)], ROWS[of_part == bool(part)], partition=(part, 2)
        )
        for part in range(2)
    ]
    shards = [lambda keys, handle=handle: deeprec_lookup(export, handle, keys) for handle in handles]
    matrix = export.variable("matrix", np.arange(8, dtype=np.float32).reshape(4, 2))
    export.node("Identity", [matrix], "matrix_out", T="float32")
    path = export.finish(tmp_path / "model", [partitioned(export, ids, shards)], 2, {"matrix": "matrix_out"})
    tensors = _incremental(np.array([8], np.int64), NEW_ROWS[1:], "emb/part_0")
    tensors |= _incremental(np.array([7], np.int64), NEW_ROWS[:1], "emb/part_1")
    tensors |= _incremental(np.array([2, 0], np.int64), NEW_ROWS, "matrix")
    increment = find_increment(_save(tmp_path / "incr-1", tensors))
    assert increment is not None
    found = {entry.name: entry for entry in read_increment(read_model(path), increment).tables}
    assert {name: entry.changed.read().tolist() for name, entry in found.items()} == {
        "emb/part_0": [8],
        "emb/part_1": [7],
        "matrix": [0, 2],
    }
    assert found["matrix"].key_kind == "row_number"
    np.testing.assert_array_equal(found["matrix"].rows.read(), NEW_ROWS[::-1])


def _tfplus(path: Path, keys: np.ndarray, rows: np.ndarray, **table: object) -> Path:
    export = Export()
    handle = tfplus_table(export, "scope/item", keys, rows, **table)
    return export.finish(path, [tfplus_lookup(export, handle, export.input("key"))], 2)


def test_delta_export_of_tfplus_has_changed_and_deleted_keys(tmp_path: Path) -> None:
    old = _tfplus(tmp_path / "old", KEYS, ROWS, blacklist=[1000])
    keys, rows = np.array([7, 8, 3], np.int64), np.concatenate([NEW_ROWS, ROWS[:1]])
    new = _tfplus(tmp_path / "new", keys, rows, full=False, delete_keys=[-2, 55], blacklist=[3])
    make_delta(old, new, tmp_path / "timeline")
    (segment,) = TimelineReader(tmp_path / "timeline", find_position(old))
    (found,) = segment.delta.tables
    assert (found.changed.read().tolist(), found.deleted.read().tolist()) == ([7, 8], [-2, 3])
    cut(old, tmp_path / "out", timeline=tmp_path / "timeline", accept_weak_proof=True)
    state = {7: [5.0, 6.0], 8: [7.0, 8.0], 2001: ROWS[4].tolist()}
    np.testing.assert_array_equal(answers(tmp_path / "out", {"key": ASKED})["rows"], _expected(state))


def test_delta_exports_of_tfplus_continue_each_other(tmp_path: Path) -> None:
    old, timeline = _tfplus(tmp_path / "old", KEYS, ROWS), tmp_path / "timeline"
    for number, key in enumerate((7, 8)):
        place = slice(number, number + 1)
        assert NEW_KEYS[number] == key
        new = _tfplus(
            tmp_path / str(number), NEW_KEYS[place], NEW_ROWS[place], full=False, delete_keys=[3 + 1000 * number]
        )
        make_delta(old, new, timeline)
    found = [segment.delta.tables[0] for segment in TimelineReader(timeline, find_position(old))]
    assert [entry.changed.read().tolist() for entry in found] == [[7], [8]]
    assert [entry.deleted.read().tolist() for entry in found] == [[3], []]
    cut(old, tmp_path / "out", timeline=timeline, accept_weak_proof=True)
    state = dict(zip(KEYS[1:].tolist(), ROWS[1:].tolist(), strict=True)) | {7: [5.0, 6.0], 8: [7.0, 8.0]}
    np.testing.assert_array_equal(answers(tmp_path / "out", {"key": ASKED})["rows"], _expected(state))


def test_full_saves_are_no_increments(tmp_path: Path) -> None:
    export = _deeprec(tmp_path / "model")
    assert find_increment(export) is None
    assert find_increment(export / "variables" / "variables") is None
    assert find_increment(_tfplus(tmp_path / "tfplus", KEYS, ROWS)) is None
    assert find_increment(tmp_path / "absent") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"item_emb-sparse_incr_values": NEW_ROWS[:1]}, "2 keys and 'item_emb-sparse_incr_values' 1 rows"),
        ({"item_emb-sparse_incr_values": np.ones((2, 3), np.float32)}, r"rows float32\[2, 3\], expected int64 keys"),
        ({"item_emb-sparse_incr_keys": np.array([7, 7], np.int64)}, "key 7 twice, expected each key once"),
        ({"item_emb-sparse_incr_keys": np.array([7, 8], np.int32)}, r"keys int32\[2\]"),
        ({"item_emb-sparse_incr_values": None}, "no tensor 'item_emb-sparse_incr_values'"),
    ],
)
def test_damaged_increments_are_refused(tmp_path: Path, change: dict[str, np.ndarray | None], message: str) -> None:
    export = _deeprec(tmp_path / "model")
    tensors = {name: value for name, value in (_incremental() | change).items() if value is not None}
    increment = _save(tmp_path / "incr-1", tensors)
    full = export / "variables" / "variables"
    with pytest.raises(UnreadableError, match=message) as error:
        make_delta(full, increment, tmp_path / "timeline", model=export)
    assert str(increment) in str(error.value)
    assert not (tmp_path / "timeline").exists()


def test_table_that_is_whole_in_a_delta_export_is_refused(tmp_path: Path) -> None:
    def saved(name: str, full: bool) -> Path:
        export = Export()
        first = tfplus_table(export, "first", KEYS, ROWS, full=True)
        second = tfplus_table(export, "second", KEYS, ROWS, full=full)
        rows = [tfplus_lookup(export, handle, export.input(f"key{handle}")) for handle in (first, second)]
        return export.finish(tmp_path / name, rows, 4)

    with pytest.raises(ConversionError, match="table 'first' as a whole, expected only its changes"):
        make_delta(saved("old", True), saved("new", False), tmp_path / "timeline")
