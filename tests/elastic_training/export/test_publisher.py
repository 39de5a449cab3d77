# SPDX-License-Identifier: Apache-2.0
"""Deltas have what the model learned, lose nothing after errors, and continue where the timeline ends."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
import processor
from elastic_training.export.changes import Changes
from elastic_training.export.collector import ChangesCut, Collector
from elastic_training.export.contents import read_contents
from elastic_training.export.publisher import seconds_of
from elastic_training.export.segments import OvertakenError, Segments
from elastic_training.layers.parts_of_model import tables_of, weights_of
from graph_tools import optimize
from graph_tools.store.segment import Segment
from graph_tools.store.timeline import list_segments, list_terms
from helpers.elastic.exported import batch, check_published, published, ranker, train
from helpers.system.waiting import wait_until


@pytest.fixture
def model() -> keras.Model:
    made = ranker()
    train(made, 1)
    return made


@pytest.fixture
def exported(model: keras.Model, tmp_path: Path) -> Path:
    et.export(model, tmp_path / "export")
    return tmp_path / "export"


def test_callback_publishes_what_fit_learned(model: keras.Model, exported: Path, tmp_path: Path) -> None:
    timeline = tmp_path / "timeline"
    publisher = et.Publisher(timeline, every="1ms", export=exported)
    train(model, 2, (publisher,), first_user=30)
    assert publisher.epoch >= 1
    check_published(model, exported, timeline)
    stats = publisher.stats()
    assert stats["pushes"] >= 1
    assert (stats["failures"], stats["error"], stats["waiting"]) == (0, None, 0)
    rows = stats["rows"]
    assert stats["push_cpu_ms_longest"] > 0
    # Deleted keys, times and positions.
    assert tables_of(model)[0].evict(np.arange(30, 35) * 10**15) > 0
    publisher.seen(event_time=1234.5, streams={"clicks/0": 17})
    publisher.close()
    check_published(model, exported, timeline)
    last = Segment(timeline / list_segments(timeline)[-1].name)
    assert last.header.event_time == 1_234_500_000
    assert last.delta.streams == {"clicks/0": 17}
    assert rows > 0
    assert last.delta.tables[0].deleted.shape[0] > 0


def test_rows_and_weights_of_a_segment_are_of_one_instant(exported: Path, model: keras.Model, tmp_path: Path) -> None:
    """After each push, the state at its epoch is that of the model when it was pushed."""
    expected = {}
    with et.Publisher(tmp_path / "timeline", every=1e-6, export=exported, model=model) as publisher:
        publisher.flush()
        features, labels = batch(3)
        for _ in range(4):
            model.train_on_batch(features, labels)
            epoch = publisher.flush()
            expected[epoch] = model(features, training=False).numpy()
    assert len(expected) == 4
    artifact = tmp_path / "artifact"
    optimize(exported, artifact, live=True, precision="fp32", accept_weak_proof=True)
    with processor.Model(artifact, {"follow": str(tmp_path / "timeline"), "warmup_runs": 1}) as served:
        found = served.run({name: value.numpy() for name, value in features.items()})["score"]
    np.testing.assert_allclose(found, expected[max(expected)], rtol=1e-4, atol=1e-5)
    assert np.abs(expected[max(expected)] - expected[min(expected)]).max() > 1e-3


def test_failed_publication_loses_nothing(
    model: keras.Model, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline = tmp_path / "timeline"
    publisher = et.Publisher(timeline, every="20ms", export=exported, model=model)
    publisher.flush()
    link, full = Path.hardlink_to, True

    def hardlink_to(self: Path, target: Path) -> None:
        if full:
            raise OSError(28, os.strerror(28))
        link(self, target)

    monkeypatch.setattr(Path, "hardlink_to", hardlink_to)
    train(model, 2, (), first_user=30)
    with pytest.raises(TimeoutError, match=r"not published in 0.3 s: .*No space left on device"):
        publisher.flush(0.3)
    tables_of(model)[0].evict([30 * 10**15])
    train(model, 3, ())
    with pytest.raises(TimeoutError, match="No space left"):
        publisher.flush(0.1)
    stats = wait_until(lambda: found if (found := publisher.stats())["failures"] >= 2 else None, "another attempt")
    assert "No space left" in stats["error"]
    assert stats["waiting"] > 0
    # It goes on in its term.
    assert list_terms(timeline) == [1]
    full = False
    # It tries again by itself.
    wait_until(lambda: publisher.stats()["error"] is None, "a publication")
    check_published(model, exported, timeline)
    publisher.close()
    check_published(model, exported, timeline)


def test_invalid_positions_and_times_are_refused_and_change_nothing(
    model: keras.Model, exported: Path, tmp_path: Path
) -> None:
    positions = {"clicks/0": 3}
    with et.Publisher(tmp_path / "t", every="1h", export=exported, model=model, streams=lambda: positions) as publisher:
        publisher.flush()
        publisher.seen(event_time=1234.0, streams={"views/0": 5})
        with pytest.raises(ValueError, match="stream 'views/0': position 'x', expected an integer from 0"):
            publisher.step(event_time=1235.0, streams={"views/0": "x"})
        with pytest.raises(ValueError, match=r"event_time: .* is more than a day in the future, expected seconds"):
            publisher.step(event_time=time.time() * 1000, streams={"views/0": 6})
        positions["clicks/0"] = -1
        with pytest.raises(ValueError, match="stream 'clicks/0': position -1, expected an integer"):
            publisher.push()
        positions["clicks/0"] = 4
        publisher.flush()
        assert publisher.published_streams == {"clicks/0": 4, "views/0": 5}
        assert publisher.stats()["failures"] == 0
        last = Segment(tmp_path / "t" / list_segments(tmp_path / "t")[-1].name)
        assert last.header.event_time == 1_234_000_000


def test_timeline_that_was_removed_is_not_made_again(model: keras.Model, exported: Path, tmp_path: Path) -> None:
    timeline, away = tmp_path / "timeline", tmp_path / "away"
    with et.Publisher(timeline, every="20ms", export=exported, model=model) as publisher:
        epoch = publisher.flush()
        timeline.rename(away)
        for _ in range(2):
            # At first, nothing has changed.
            with pytest.raises(TimeoutError, match="timeline: does not exist any more, expected the folder in which"):
                publisher.flush(0.3)
            train(model, 2, (), first_user=30)
        assert not timeline.exists()
        away.rename(timeline)
        # One epoch, or two if the publisher has begun with the first cut before this one is handed over.
        assert publisher.flush() in (epoch + 1, epoch + 2)
        assert publisher.stats()["error"] is None
    check_published(model, exported, timeline)
    assert list_terms(timeline) == [1]


def test_error_after_the_segment_has_its_name(
    model: keras.Model, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graph_tools.store import timeline_writer

    sync, failing = timeline_writer.sync_folder, [True]

    def sync_folder(folder: Path) -> None:
        if failing and list_segments(folder):
            failing.clear()
            raise OSError(5, os.strerror(5))
        sync(folder)

    with et.Publisher(tmp_path / "timeline", every="20ms", export=exported, model=model) as publisher:
        monkeypatch.setattr(timeline_writer, "sync_folder", sync_folder)
        train(model, 2)
        publisher.flush()
        assert publisher.stats()["failures"] == 1
    check_published(model, exported, tmp_path / "timeline")


def test_restart_continues_the_timeline_from_any_state(model: keras.Model, exported: Path, tmp_path: Path) -> None:
    timeline = tmp_path / "timeline"
    with et.Publisher(timeline, every="1ms", export=exported, model=model, streams=lambda: {"clicks": 4}) as publisher:
        train(model, 2, (publisher,), first_user=40)
        before = publisher.flush()
    # Another process would begin at an earlier checkpoint: here, with other rows and weights and fewer keys.
    restarted = ranker(seed=9)
    train(restarted, 7)
    with et.Publisher(timeline, every="1ms", export=exported, model=restarted) as publisher:
        assert publisher.published_streams == {"clicks": 4}
        assert publisher.flush() == before + 1
        assert publisher.stats()["deleted"] > 0
        check_published(restarted, exported, timeline)
        assert publisher.flush() == before + 1
    assert published(exported, timeline).streams == {"clicks": 4}


def test_second_writer_stops_the_first(model: keras.Model, exported: Path, tmp_path: Path) -> None:
    timeline = tmp_path / "timeline"
    first = et.Publisher(timeline, every="1ms", export=exported, model=model)
    first.flush()
    with pytest.raises(ValueError, match=r"table 'user_rows' is followed by the publisher of .*timeline, expected one"):
        et.Publisher(tmp_path / "other", export=exported, model=model)
    other = ranker(seed=3)
    train(other, 4)
    second = et.Publisher(timeline, every="1ms", export=exported, model=other)
    second.flush()
    train(model, 5)
    with pytest.raises(OvertakenError, match=r"term-0000000000000002: a writer of term 2, expected none after term 1"):
        first.flush()
    with pytest.raises(OvertakenError):
        train(model, 6, (first,))
    with pytest.raises(OvertakenError):
        first.close()
    second.close()
    check_published(other, exported, timeline)


def test_other_models_and_times_are_refused(model: keras.Model, exported: Path, tmp_path: Path) -> None:
    key = keras.Input((), dtype="int64")
    other = keras.Model(key, et.HashEmbedding(5, name="user_rows")(key))
    other(tf.constant([1], tf.int64))
    found = "table 0 of the model is 'user_rows', int64 keys, dim 5"
    with pytest.raises(ValueError, match=f"{found}, expected 'user_rows', int64 keys, dim 8, as in the export"):
        et.Publisher(tmp_path / "t", export=exported, model=other)
    assert not (tmp_path / "t").exists()
    with pytest.raises(ValueError, match="not started"):
        et.Publisher(tmp_path / "t", export=exported).flush()
    with pytest.raises(ValueError, match=r"contents.json: .*expected an export of elastic_training"):
        et.Publisher(tmp_path / "t", export=tmp_path)
    with pytest.raises(ValueError, match="every: 'soon', expected a time such as '1s'"):
        et.Publisher(tmp_path / "t", every="soon", export=exported)
    assert [seconds_of(text) for text in ("1s", "500ms", "2min", 0.25)] == [1.0, 0.5, 120.0, 0.25]
    with pytest.raises(ValueError, match="every: 0"):
        seconds_of(0)


def test_released_rows_are_deleted(tmp_path: Path) -> None:
    embed = et.HashEmbeddingModule(2, optimizer=et.GroupSGD(1.0, l21=100.0, release_after=1), name="t")
    keys = tf.constant([1, 2, 3], tf.int64)
    embed(keys, training=True)
    spec = {"keys": tf.TensorSpec([None], tf.int64)}
    et.export(embed, tmp_path / "m", inputs=spec, function=lambda found: embed(found["keys"], training=False))
    with et.Publisher(tmp_path / "t", export=tmp_path / "m", model=embed) as publisher:
        publisher.flush()
        for _ in range(2):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(embed(keys[:2], training=True))
            tape.gradient(loss, embed.trainable_variables)
        publisher.flush()
        assert publisher.stats()["deleted"] == 2
    assert published(tmp_path / "m", tmp_path / "t").tables["t"].keys.tolist() == [3]


def test_checkpoints_and_rows_changed_while_a_cut_is_read(
    model: keras.Model, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the training thread changes after a push is not in it, and a checkpoint may begin meanwhile."""
    timeline = tmp_path / "timeline"
    begun, may_read = threading.Event(), threading.Event()
    add = Segments.add

    def add_later(self: Segments, *arguments: Any) -> None:
        begun.set()
        assert may_read.wait(60)
        add(self, *arguments)

    publisher = et.Publisher(timeline, every="1h", export=exported, model=model)
    epoch = publisher.flush()
    train(model, 2, first_user=30)
    monkeypatch.setattr(Segments, "add", add_later)
    expected = {table.name: table.export() for table in tables_of(model)}
    weights = [np.array(weight.numpy()) for weight in weights_of(model)]
    assert publisher.push()
    assert begun.wait(60)
    assert not publisher.push()
    checkpoints = et.Checkpoints(tmp_path / "checkpoints", model=model)
    checkpoints.save()
    train(model, 3, first_user=45)
    assert tables_of(model)[0].evict(expected["user_rows"][0][:5]) == 5
    may_read.set()
    wait_until(lambda: publisher.epoch != epoch, "a publication")
    state, contents = published(exported, timeline), read_contents(exported)
    for entry in contents.tables:
        keys, rows = expected[entry.table]
        assert not Changes.of(keys, rows.weights.numpy(), keys[:0]).since(state.tables[entry.name])
    for entry in contents.variables:
        np.testing.assert_array_equal(state.variables[entry.name], weights[entry.place])
    assert publisher.stats()["postponed"] == 1
    publisher.close()
    check_published(model, exported, timeline)


def test_rows_beyond_the_memory_are_published_one_cut_later(
    model: keras.Model, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline = tmp_path / "timeline"
    publisher = et.Publisher(timeline, every="1h", export=exported, model=model, memory_bytes=1)
    epoch, add, table = publisher.flush(), Segments.add, tables_of(model)[0]

    def add_after_changes(self: Segments, *arguments: Any) -> None:
        monkeypatch.setattr(Segments, "add", add)
        keys = table.export()[0]
        table.insert(keys, tf.ones([len(keys), 8]))
        add(self, *arguments)

    train(model, 2)
    monkeypatch.setattr(Segments, "add", add_after_changes)
    # It pushes again by itself, since the first cut is not whole.
    assert publisher.flush() == epoch + 1
    assert publisher.stats()["pushes"] == 3
    check_published(model, exported, timeline)
    publisher.close()


def test_lost_changes_are_found_by_comparing_all_rows(model: keras.Model, exported: Path, tmp_path: Path) -> None:
    timeline = tmp_path / "timeline"
    publisher = et.Publisher(timeline, every="20ms", export=exported, model=model)
    publisher.flush()
    rows = publisher.stats()["rows"]
    train(model, 2, first_user=30)
    tables_of(model)[0].evict(tables_of(model)[0].export()[0][:3])
    # Somebody takes the changes and drops them.
    ChangesCut(tables_of(model), 1 << 20).end(succeeded=False)
    epoch = publisher.epoch
    assert publisher.flush() == epoch + 1
    assert publisher.stats()["failures"] == 1
    check_published(model, exported, timeline)
    # Only the difference was published.
    assert 0 < publisher.stats()["rows"] - rows < sum(table.size() for table in tables_of(model))
    publisher.close()


def test_closed_publishers_leave_nothing_behind(model: keras.Model, exported: Path, tmp_path: Path) -> None:
    table = tables_of(model)[0]

    def evict() -> int:
        assert table.evict(table.export()[0][:2]) == 2
        return int(table.stats()["recorded_evictions"])

    assert evict() == 0
    publisher = et.Publisher(tmp_path / "timeline", export=exported, model=model)
    publisher.flush()
    assert evict() == 2
    publisher.close()
    assert evict() == 0
    # One that is forgotten instead.
    collector = Collector(model, read_contents(exported), "a test", 1 << 20)
    assert evict() == 2
    del collector
    gc.collect()
    assert evict() == 0
