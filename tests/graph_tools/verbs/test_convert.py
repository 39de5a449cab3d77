# SPDX-License-Identifier: Apache-2.0
"""Test that an export with a timeline applied answers like a cut of the later export, bit for bit."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.errors import GraphToolsError, UnreadableError, UsageError, VerificationError
from graph_tools.model import Model
from graph_tools.options import CutOptions
from graph_tools.readers.lineage import find_position
from graph_tools.store.delta import Delta
from graph_tools.store.lineage import read_lineage, write_lineage
from graph_tools.store.timeline import TimelineReader
from graph_tools.store.timeline_writer import TimelineWriter
from graph_tools.tables.overlay import overlay
from graph_tools.tensors import ArrayTensor
from graph_tools.verbs.cut import cut
from graph_tools.verbs.delta.make import make_delta
from graph_tools.verbs.fuse import optimize
from helpers.graph_tools.delta_segments import floats, int_keys, strings, table
from helpers.graph_tools.stock_answers import answers
from helpers.models.exports_in_time import FAMILIES, MOMENTS, asked, export_at


@pytest.mark.parametrize("limit", [CutOptions.memory_limit, 600], ids=["at_once", "in_ranges"])
@pytest.mark.parametrize("family", FAMILIES)
def test_applied_deltas_equal_a_cut_of_the_new_export(tmp_path: Path, family: str, limit: int) -> None:
    exports = [export_at(family, tmp_path / str(moment) / "model", moment) for moment in range(MOMENTS)]
    absent_key = {"0": "zero"} if family == "tensornet" else {}
    options = CutOptions(absent_key=absent_key)
    timeline = tmp_path / "timeline"
    for old, new in itertools.pairwise(exports):
        make_delta(old, new, timeline, absent_key=absent_key, memory_limit=limit)
    start = find_position(exports[0])
    reader = TimelineReader(timeline, start)
    assert len(list(reader)) == MOMENTS - 1
    feeds = {"key": asked(family)}
    for epoch in range(1, MOMENTS):
        found, expected = tmp_path / f"applied_{epoch}", tmp_path / f"cut_{epoch}"
        cut(exports[0], found, timeline=timeline, last_epoch=epoch, options=options, accept_weak_proof=True)
        cut(exports[epoch], expected, options=options, check=False)
        first, second = answers(found, feeds), answers(expected, feeds)
        assert first.keys() == second.keys()
        for name in first:
            np.testing.assert_array_equal(first[name].view(np.uint32), second[name].view(np.uint32))
        position = read_lineage(found)
        assert position is not None
        assert (position.lineage, position.epoch) == (start.lineage, epoch)
    assert position.chain == reader.position.chain


def _timeline(folder: Path, base: Path, *deltas: Delta) -> Path:
    writer = TimelineWriter(folder, find_position(base), permit_not_finite=True)
    for delta in deltas:
        writer.publish(delta)
    return folder


def _refused(base: Path, folder: Path, *deltas: Delta, message: str, **arguments: Any) -> None:
    timeline, target = _timeline(folder / "timeline", base, *deltas), folder / "out"
    with pytest.raises(GraphToolsError, match=message) as error:
        cut(base, target, timeline=timeline, **arguments)
    assert str(timeline) in str(error.value)
    assert not target.exists()
    shutil.rmtree(timeline)


def test_deltas_that_do_not_fit_the_model_are_refused(tmp_path: Path) -> None:
    plain = export_at("tensorflow", tmp_path / "plain" / "model", 0)
    sparse = export_at("tfplus", tmp_path / "sparse" / "model", 0)
    rows = table("embedding", int_keys(50), 3, key_kind="row_number", seed=1)
    for base, delta, message in (
        (plain, Delta((rows,)), "'embedding': rows of dim 3 by row_number, the last of them 50"),
        (plain, Delta((), {"kernel": ArrayTensor(floats(3))}), r"variable 'kernel': \[3\] in the timeline"),
        (plain, Delta((), {"bias": ArrayTensor(floats(3))}), "variable 'bias': not in the model"),
        (plain, Delta((), {"steps": ArrayTensor(floats(1)[0])}), "variable 'steps'"),
        (plain, Delta((table("embedding", int_keys(1), 3, seed=1),)), "table 'embedding': not in the model"),
        (sparse, Delta((table("scope/item", strings(b"a"), 3, seed=1),)), "keys of kind string and dim 3"),
        (sparse, Delta((table("scope/item", int_keys(1), 4, seed=1),)), "keys of kind int64 and dim 4"),
        (
            sparse,
            Delta(
                (table("scope/item", int_keys(), 3, default_numbers=np.zeros(1, np.uint32), default_rows=floats(1, 3)),)
            ),
            "default row 0, expected one of 0 default rows",
        ),
    ):
        _refused(base, tmp_path, delta, message=message)


def test_epoch_that_no_segment_ends_with_is_refused(tmp_path: Path) -> None:
    base = export_at("tensorflow", tmp_path / "model", 0)
    _refused(base, tmp_path, Delta(), message="--to 3: epoch 1 of", last_epoch=3)


def test_timeline_of_another_export_is_refused(tmp_path: Path) -> None:
    base, other = (export_at("tensorflow", tmp_path / str(moment) / "model", moment) for moment in (0, 1))
    timeline = _timeline(tmp_path / "timeline", other, Delta())
    with pytest.raises(UnreadableError, match="another lineage"):
        cut(base, tmp_path / "out", timeline=timeline)


def test_result_that_differs_from_its_source_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = export_at("tensorflow", tmp_path / "model", 0)
    timeline = _timeline(tmp_path / "timeline", base, Delta((), {"kernel": ArrayTensor(floats(3, 1, seed=1))}))
    reads = itertools.count()

    def every_other_time(model: Model, delta: Delta, absent_key: dict[str, str]) -> None:
        # Each attempt reads the source twice, to convert it and to compare it.
        overlay(model, delta if next(reads) % 2 else Delta(), absent_key)

    monkeypatch.setattr("graph_tools.verbs.convert.overlay", every_other_time)
    with pytest.raises(VerificationError, match="not written"):
        cut(base, tmp_path / "out", timeline=timeline, accept_weak_proof=True)
    assert not (tmp_path / "out").exists()


def test_absent_key_that_takes_the_row_of_a_key_follows_this_row(tmp_path: Path) -> None:
    base = export_at("tfra", tmp_path / "model", 0)
    changed = table("scope_item", int_keys(3), 3, seed=1)
    timeline = _timeline(tmp_path / "timeline", base, Delta((changed,)))
    options = CutOptions(absent_key={"scope_item": "row:3"})
    cut(base, tmp_path / "out", timeline=timeline, options=options, accept_weak_proof=True)
    found = answers(tmp_path / "out", {"key": np.array([3, 12345], np.int64)})["rows"]
    np.testing.assert_array_equal(found, np.repeat(changed.rows.read(), 2, axis=0))


def test_artifact_continues_where_its_lineage_says(tmp_path: Path) -> None:
    exports = [export_at("tensorflow", tmp_path / str(moment) / "model", moment) for moment in range(MOMENTS)]
    timeline = tmp_path / "timeline"
    for old, new in itertools.pairwise(exports):
        make_delta(old, new, timeline)
    positions = [find_position(exports[0])]
    reader = TimelineReader(timeline, positions[0])
    positions += [reader.position for _ in reader]
    # The second export, as a trainer would write it that knows its place.
    write_lineage(exports[1], positions[1])
    cut(exports[1], tmp_path / "out", timeline=timeline, accept_weak_proof=True)
    assert read_lineage(tmp_path / "out") == replace(positions[2], term=0)
    feeds = {"key": asked("tensorflow")}
    cut(exports[2], tmp_path / "cut", check=False)
    first, second = answers(tmp_path / "out", feeds), answers(tmp_path / "cut", feeds)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


def test_forecast_writes_nothing(tmp_path: Path) -> None:
    base = export_at("deeprec", tmp_path / "model", 0)
    timeline = _timeline(tmp_path / "timeline", base, Delta())
    assert cut(base, None, timeline=timeline, dry_run=True).tables
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "timeline"]


def test_artifacts_are_refused(tmp_path: Path) -> None:
    base = export_at("tensorflow", tmp_path / "model", 0)
    cut(base, tmp_path / "cut", check=False)
    message = f"{tmp_path / 'cut'}: was written by graph-tools, which has changed its variables"
    with pytest.raises(UsageError, match=message):
        cut(tmp_path / "cut", tmp_path / "out", timeline=tmp_path / "timeline")
    with pytest.raises(UsageError, match=message):
        make_delta(base, tmp_path / "cut", tmp_path / "timeline")


def test_optimized_model_at_an_epoch_equals_the_optimized_export(tmp_path: Path) -> None:
    exports = [export_at("tfplus", tmp_path / str(moment) / "model", moment) for moment in range(MOMENTS)]
    timeline = tmp_path / "timeline"
    for old, new in itertools.pairwise(exports):
        make_delta(old, new, timeline)
    found, expected = tmp_path / "found", tmp_path / "expected"
    optimize(exports[0], found, timeline=timeline, precision="fp32", accept_weak_proof=True)
    optimize(exports[-1], expected, precision="fp32", accept_weak_proof=True)
    feeds = {"key": asked("tfplus")}
    first, second = answers(found, feeds), answers(expected, feeds)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    position = read_lineage(found)
    assert position is not None
    assert (position.epoch, position.lineage) == (MOMENTS - 1, find_position(exports[0]).lineage)


def test_live_model_begins_at_the_last_epoch(tmp_path: Path) -> None:
    base, new = (export_at("tfplus", tmp_path / str(moment) / "model", moment) for moment in (0, 2))
    timeline = tmp_path / "timeline"
    make_delta(base, new, timeline)
    optimize(base, tmp_path / "out", timeline=timeline, live=True, precision="fp32", accept_weak_proof=True)
    position = read_lineage(tmp_path / "out")
    assert position is not None
    described = json.loads((tmp_path / "out" / "assets" / "live.json").read_text())
    assert (described["epoch"], described["chain"]) == (1, position.chain.hex())


def test_epoch_without_a_timeline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--to 3: no timeline, expected --timeline"):
        cut(export_at("tfplus", tmp_path / "model", 0), tmp_path / "out", last_epoch=3)


def test_documented_trainer_publishes_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "graph_tools.md").read_text(encoding="utf-8")
    (program,) = [code for code in re.findall(r"^```python\n(.*?)^```", text, re.S | re.M) if "Publisher" in code]
    export = export_at("deeprec", tmp_path / "export" / "7", 0)
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "docs/graph_tools.md", "exec"), {})
    cut(export, tmp_path / "out", timeline=tmp_path / "timeline", accept_weak_proof=True)
    found = answers(tmp_path / "out", {"key": np.array([3, 17], np.int64)})
    np.testing.assert_array_equal(found["rows"], [[2, 0.25], [0.5, 1]])
    np.testing.assert_allclose(found["score"], 1 / (1 + np.exp([[-2.5], [-2.5]])), rtol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_live_models_have_what_deltas_name(tmp_path: Path, family: str) -> None:
    old, new = (export_at(family, tmp_path / str(moment) / "model", moment) for moment in (0, 1))
    absent_key = {"0": "zero"} if family == "tensornet" else {}
    make_delta(old, new, tmp_path / "timeline", absent_key=absent_key)
    options = CutOptions(absent_key=absent_key)
    optimize(old, tmp_path / "out", live=True, options=options, precision="fp32", check=False)
    described = json.loads((tmp_path / "out" / "assets" / "live.json").read_text())
    tables = {(table["source"], table["key_kind"], table["dim"]) for table in described["tables"]}
    shapes = {variable["source"]: variable["shape"] for variable in described["variables"]}
    (segment,) = TimelineReader(tmp_path / "timeline", find_position(old))
    assert segment.delta.tables
    for entry in segment.delta.tables:
        if entry.key_kind != "row_number" or entry.name not in shapes:
            assert (entry.name, entry.key_kind, entry.dim) in tables
        else:
            assert entry.dim == np.prod(shapes[entry.name][1:], dtype=int)
    assert segment.delta.variables.keys() <= shapes.keys()
