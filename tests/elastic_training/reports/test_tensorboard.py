# SPDX-License-Identifier: Apache-2.0
"""Summaries, read back from the files that TensorBoard reads."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.util import event_pb2

import elastic_training as et


def read_events(folder: Path) -> dict[str, list[tuple[int, str, np.ndarray]]]:
    """Return by tag: step, plugin, value."""
    found = defaultdict(list)
    for file in folder.glob("events.out.tfevents.*"):
        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
            event = event_pb2.Event.FromString(record)
            for value in event.summary.value:
                tensor = tf.make_ndarray(value.tensor)
                found[value.tag].append((event.step, value.metadata.plugin_data.plugin_name, tensor))
    return found


def make_model() -> keras.Model:
    keys = keras.Input((), dtype="int64")
    rows = et.HashEmbedding(4, et.Adagrad(0.1), et.CountFilter(2), name="items")(keys)
    model = keras.Model(keys, keras.layers.Dense(1)(rows))
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize(("every", "steps"), [(None, [0, 1, 2]), (2, [2, 4, 6])])
def test_callback(every: int | None, steps: list[int], tmp_path: Path) -> None:
    model = make_model()
    keys = np.array([1, 1, 2, 3, 3, 3, 4, 1])
    summaries = et.ElasticSummaries(tmp_path, every=every)
    model.fit(keys, np.ones((8, 1)), epochs=3, batch_size=4, shuffle=False, verbose=0, callbacks=[summaries])
    events = read_events(tmp_path / "elastic")
    rows = events["elastic/items/rows"]
    assert [step for step, _, _ in rows] == steps
    assert {plugin for _, plugin, _ in rows} == {"scalars"}
    # Keys 2 and 4 come twice only with the second epoch.
    assert [int(value) for _, _, value in rows] == [2, 4, 4]
    assert [int(value) for _, _, value in events["elastic/items/candidates"]] == [2, 0, 0]
    step, plugin, buckets = events["elastic/items/norms"][-1]
    assert (step, plugin, buckets.shape[1]) == (steps[-1], "histograms", 3)
    assert buckets[:, 2].sum() == 4
    assert buckets[-1, 1] == pytest.approx(et.report(model).of("items").norms["100"])
    assert (buckets[1:, 0] == buckets[:-1, 1]).all()


def test_callback_of_tf_keras(tmp_path: Path) -> None:
    tf_keras = pytest.importorskip("tf_keras")
    keys = tf_keras.Input((), dtype="int64")
    rows = et.tf_keras.HashEmbedding(4, name="items")(keys)
    model = tf_keras.Model(keys, tf_keras.layers.Dense(1)(rows))
    model.compile("sgd", "mse")
    summaries = et.tf_keras.ElasticSummaries(tmp_path)
    model.fit(np.array([1, 2]), np.ones((2, 1)), epochs=2, verbose=0, callbacks=[summaries])
    events = read_events(tmp_path / "elastic")["elastic/items/rows"]
    assert [(step, int(value)) for step, _, value in events] == [(0, 2), (1, 2)]


def test_loop_of_your_own(tmp_path: Path) -> None:
    module = et.HashEmbeddingModule(2, name="city")
    module(tf.constant(["Bern"]), training=True)
    with tf.summary.create_file_writer(str(tmp_path)).as_default(step=7):
        made = et.write_summaries(module)
    assert made.of("city").rows == 1
    assert [(step, int(value)) for step, _, value in read_events(tmp_path)["elastic/city/rows"]] == [(7, 1)]


def test_no_writer_is_an_error() -> None:
    module = et.HashEmbeddingModule(2)
    module(tf.constant(["Bern"]), training=True)
    with pytest.raises(ValueError, match=r"write_summaries: no default writer, expected a call within tf.summary"):
        et.write_summaries(module, 1)


@pytest.mark.parametrize("every", [0, 1.5, True])
def test_wrong_period(every: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ElasticSummaries: every is .*, expected a number of batches from 1 on"):
        et.ElasticSummaries(tmp_path, every=every)
