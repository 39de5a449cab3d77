# SPDX-License-Identifier: Apache-2.0
"""Test what a delta between two exports contains, and which pairs of exports are refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.readers.lineage import digest_export, find_position
from graph_tools.report.delta import TableChanges
from graph_tools.store.delta import Delta
from graph_tools.store.lineage import write_lineage
from graph_tools.store.merging import merge_deltas
from graph_tools.store.segment import Segment
from graph_tools.store.timeline import Position, TimelineReader, list_segments, segment_name
from graph_tools.store.timeline_writer import TimelineWriter
from graph_tools.verbs.delta.make import make_delta
from helpers.graph_tools.delta_segments import int_keys, table
from helpers.models.exports_in_time import export_at, keys_at, rows_at
from helpers.models.model_builders import build_linear, build_string, build_tf1
from load_tests.workloads.sparse_exports import (
    Export,
    deeprec_lookup,
    deeprec_table,
    tfplus_lookup,
    tfplus_table,
)

KEYS = np.array([3, -9, 7, 0], np.int64)
ROWS = np.arange(8, dtype=np.float32).reshape(4, 2)


def _sparse(path: Path, keys: Any = KEYS, rows: np.ndarray = ROWS, **table: Any) -> Path:
    export = Export()
    handle = tfplus_table(export, "item", np.asarray(keys, np.int64), rows, **table)
    return export.finish(path / "model", [tfplus_lookup(export, handle, export.input("key"))], rows.shape[1])


def _only_table(folder: Path, epoch: int = 1) -> Any:
    tables = Segment(folder / segment_name(epoch, epoch)).delta.tables
    (table,) = [table for table in tables if table.name != "dense/w"]
    return table


def test_delta_has_changed_new_and_deleted_keys(tmp_path: Path) -> None:
    old, new = (export_at("tfplus", tmp_path / str(moment), moment) for moment in (0, 1))
    report = make_delta(old, new, tmp_path / "timeline")
    before, now = set(keys_at(0).tolist()) - {1}, set(keys_at(1).tolist()) - {2}
    table = _only_table(tmp_path / "timeline")
    expected = sorted(key for key in now if key not in before or key % 3 == 0)
    assert table.changed.read().tolist() == expected
    assert table.deleted.read().tolist() == sorted(before - now)
    np.testing.assert_array_equal(table.rows.read(), rows_at(1, np.array(expected)))
    assert report.segment.tables == [
        TableChanges("dense/w", "row_number", 1, 3, 0, 0, 0),
        TableChanges("scope/item", "int64", 3, len(expected), len(before - now), 0, 0),
    ]


def test_only_bits_that_differ_are_changes(tmp_path: Path) -> None:
    rows, other = ROWS.copy(), ROWS.copy()
    rows[0] = np.array([0x7FC00001, 0x7F800000], np.uint32).view(np.float32)
    other[0], other[1, 0], rows[1, 0] = rows[0], 0.0, -0.0
    old, new = _sparse(tmp_path / "a", rows=rows), _sparse(tmp_path / "b", KEYS[::-1], other[::-1])
    make_delta(old, new, tmp_path / "timeline")
    assert _only_table(tmp_path / "timeline").changed.read().tolist() == [-9]


def test_equal_exports_give_an_empty_epoch(tmp_path: Path) -> None:
    old, new = (export_at("deeprec", tmp_path / name, 0) for name in "ab")
    report = make_delta(old, new, tmp_path / "timeline")
    assert (report.segment.tables, report.segment.variables, report.segment.last_epoch) == ([], [], 1)
    # The next delta may begin with either, since both have these weights.
    assert make_delta(old, new, tmp_path / "timeline").segment.last_epoch == 2


def test_variables_have_changes_by_row_number(tmp_path: Path) -> None:
    old, new = (export_at("tensorflow", tmp_path / str(moment), moment) for moment in (0, 2))
    make_delta(old, new, tmp_path / "timeline")
    found = {table.name: table for table in Segment(tmp_path / "timeline" / segment_name(1, 1)).delta.tables}
    assert {name: table.key_kind for name, table in found.items()} == {
        "embedding": "row_number",
        "kernel": "row_number",
    }
    np.testing.assert_array_equal(found["embedding"].changed.read(), np.arange(0, 50, 3))
    np.testing.assert_array_equal(found["embedding"].rows.read(), rows_at(2, np.arange(0, 50, 3)))


@pytest.mark.parametrize("use_resource", [True, False])
def test_variables_of_tf1_exports(tmp_path: Path, use_resource: bool) -> None:
    old, new = (build_tf1(tmp_path / name, use_resource, scale) for name, scale in (("a", 1.0), ("b", 2.0)))
    report = make_delta(old, new, tmp_path / "timeline")
    assert [table.name for table in report.segment.tables] == ["w"]
    assert [variable.name for variable in report.segment.variables] == ["b"]


def test_checkpoints_are_compared_with_the_graph_of_an_export(tmp_path: Path) -> None:
    models = [build_linear(tmp_path / str(scale), scale) for scale in (1.0, 2.0, 3.0)]
    first, second = (model / "variables" / "variables" for model in models[1:])
    report = make_delta(first, second, tmp_path / "timeline", model=models[0])
    assert [table.name for table in report.segment.tables] == ["w"]
    assert [variable.name for variable in report.segment.variables] == ["b"]
    assert report.segment.lineage == find_position(models[1]).lineage.hex()


def test_lineage_of_the_old_export_is_continued(tmp_path: Path) -> None:
    old, new = (export_at("tfra", tmp_path / str(moment), moment) for moment in (0, 1))
    position = Position(bytes(range(16)), 4, bytes(32))
    write_lineage(old, position)
    report = make_delta(old, new, tmp_path / "timeline")
    assert (report.segment.first_epoch, report.segment.lineage) == (5, position.lineage.hex())
    assert [segment.header.first_epoch for segment in TimelineReader(tmp_path / "timeline", position)] == [5]


def test_timeline_of_another_export_is_refused(tmp_path: Path) -> None:
    exports = [export_at("tfra", tmp_path / str(moment), moment) for moment in range(3)]
    timeline = tmp_path / "timeline"
    make_delta(exports[0], exports[1], timeline)
    files = sorted(timeline.iterdir())
    with pytest.raises(UnreadableError, match="another lineage"):
        make_delta(exports[2], exports[1], timeline)
    assert sorted(timeline.iterdir()) == files


@pytest.mark.parametrize("base", [0, 1])
def test_old_export_may_be_any_state_of_the_timeline(tmp_path: Path, base: int) -> None:
    exports = [export_at("tfra", tmp_path / str(moment), moment) for moment in range(3)]
    timeline = tmp_path / "timeline"
    make_delta(exports[0], exports[1], timeline)
    # Another trainer changes a row that the next export does not change.
    writer = TimelineWriter(timeline, find_position(exports[0]))
    writer.publish(Delta((table("scope_item", int_keys(4), 3, seed=1),)))
    make_delta(exports[base], exports[2], timeline)
    assert 4 in _only_table(timeline, 3).changed.read().tolist()
    deltas = [segment.delta for segment in TimelineReader(timeline, find_position(exports[0]))]
    make_delta(exports[0], exports[2], tmp_path / "direct")
    (merged,) = [entry for entry in merge_deltas(deltas).tables if entry.name == "scope_item"]
    direct = _only_table(tmp_path / "direct")
    rows = dict(zip(merged.changed.read().tolist(), merged.rows.read().tolist(), strict=True))
    assert {key: rows[key] for key in direct.changed.read().tolist()} == dict(
        zip(direct.changed.read().tolist(), direct.rows.read().tolist(), strict=True)
    )


def test_damaged_memory_of_weights_is_refused(tmp_path: Path) -> None:
    exports = [export_at("tfra", tmp_path / str(moment), moment) for moment in range(2)]
    timeline = tmp_path / "timeline"
    make_delta(exports[0], exports[1], timeline)
    for text in ("", "[]", '{"schema": "weights/2"}', '{"schema": "weights/1", "states": [{}]}'):
        (timeline / "weights.json").write_text(text)
        with pytest.raises(UnreadableError, match=r"weights\.json"):
            make_delta(exports[1], exports[0], timeline)


def test_delta_that_was_not_published_can_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exports = [export_at("tfra", tmp_path / str(moment), moment) for moment in range(3)]
    timeline = tmp_path / "timeline"
    make_delta(exports[0], exports[1], timeline)

    def killed(self: TimelineWriter) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TimelineWriter, "_check_term", killed)
        with pytest.raises(KeyboardInterrupt):
            make_delta(exports[1], exports[2], timeline)
    assert len(list_segments(timeline)) == 1
    make_delta(exports[1], exports[2], timeline)
    assert len(list_segments(timeline)) == 2


@pytest.mark.parametrize("strings", [False, True])
def test_ranges_of_keys_lead_to_the_same_bytes(tmp_path: Path, strings: bool) -> None:
    family = "tfplus_strings" if strings else "tfplus"
    old, new = (export_at(family, tmp_path / str(moment), moment) for moment in (0, 2))
    tables = []
    for limit in (1 << 30, 1000, 1):
        folder = tmp_path / str(limit)
        make_delta(old, new, folder, memory_limit=limit)
        table = _only_table(folder)
        tables.append((table.changed.read().tolist(), table.rows.read().tobytes(), table.deleted.read().tolist()))
        assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    assert tables[0] == tables[1] == tables[2]
    assert len(tables[0][0]) > 5
    assert len(tables[0][2]) > 0


# Exports that differ in more than weights


def _with_vocabulary(path: Path, word: str) -> Path:
    build_string(path)
    (asset,) = (path / "assets").iterdir()
    asset.write_text(word + asset.read_text())
    return path


def test_other_graphs_assets_and_tables_are_refused(tmp_path: Path) -> None:
    linear, text = build_linear(tmp_path / "linear"), build_string(tmp_path / "text")
    sparse = _sparse(tmp_path / "sparse")
    for old, new, message in (
        (linear, text, "another signature 'serving_default'"),
        (text, _with_vocabulary(tmp_path / "words", "new\n"), "another asset"),
        (sparse, _sparse(tmp_path / "wide", rows=np.ones((4, 3), np.float32)), "another"),
        (sparse, _constants(tmp_path / "a", 1.0), "another"),
        (_constants(tmp_path / "b", 1.0), _constants(tmp_path / "c", 2.0), "another node"),
    ):
        with pytest.raises(ConversionError, match=message) as error:
            make_delta(old, new, tmp_path / "timeline")
        assert str(new) in str(error.value)
        assert not (tmp_path / "timeline").exists()


def _constants(path: Path, factor: float) -> Path:
    export = Export()
    handle = tfplus_table(export, "item", KEYS, ROWS)
    rows = tfplus_lookup(export, handle, export.input("key"))
    scaled = export.node("Mul", [rows, export.const(np.float32(factor))], T="float32")
    return export.finish(path / "model", [scaled], 2)


def test_number_of_default_rows_must_stay(tmp_path: Path) -> None:
    def saved(name: str, default: np.ndarray) -> Path:
        export = Export()
        handle = deeprec_table(export, "emb", KEYS, ROWS, default=default)
        return export.finish(tmp_path / name, [deeprec_lookup(export, handle, export.input("key"))], 2)

    old, new = (saved(f"{count}", np.arange(2 * count, dtype=np.float32).reshape(count, 2)) for count in (4, 3))
    with pytest.raises(ConversionError, match="3 default rows, which are not all zeros, after 4"):
        make_delta(old, new, tmp_path / "timeline")


def test_served_variable_that_fp32_does_not_represent_must_stay(tmp_path: Path) -> None:
    import tensorflow as tf

    def saved(name: str, value: float) -> Path:
        module = tf.Module()
        module.v = tf.Variable(np.float64(value), name="v")
        module.serve = tf.function(
            lambda x: {"y": x + module.v}, input_signature=[tf.TensorSpec([None], tf.float64, name="x")]
        )
        tf.saved_model.save(module, str(tmp_path / name), signatures={"serving_default": module.serve})
        return tmp_path / name

    with pytest.raises(ConversionError, match="variable 'v': values of type float64 have changed"):
        make_delta(saved("a", 1.0), saved("b", 2.0), tmp_path / "timeline")
    make_delta(tmp_path / "a", shutil.copytree(tmp_path / "a", tmp_path / "c"), tmp_path / "timeline")


def test_weights_of_exports_are_told_apart(tmp_path: Path) -> None:
    assert digest_export(_sparse(tmp_path / "a")) != digest_export(_sparse(tmp_path / "b", rows=ROWS + 1))
