# SPDX-License-Identifier: Apache-2.0
"""Reports of trained tables, against what training did."""

from __future__ import annotations

import json
import threading
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et

STREAM = (np.random.default_rng(1).random(4_000) ** 3 * 2_000).astype(np.int64)


@pytest.fixture(scope="module")
def model() -> keras.Model:
    """A model of two tables that has met STREAM once; the users' table has one row for each of 50 keys."""
    item, user = keras.Input((), dtype="int64", name="item"), keras.Input((), dtype="string", name="user")
    embed = et.FeatureEmbeddings(
        {
            "item": et.Feature(8, et.Adagrad(0.05), et.CountFilter(3), et.Ttl(days=1), table="items"),
            "again": et.Feature(table="items"),
        }
    )({"item": item, "again": item})
    lasso = et.GroupAdagrad(0.05, l21=10.0)
    users = et.HashEmbedding(4, lasso, embeddings_initializer="zeros", name="users")(user)
    made = keras.Model([item, user], keras.layers.Dense(1)(keras.layers.Concatenate()([*embed.values(), users])))
    made.compile("sgd", "mse")
    names = tf.constant(np.char.add("u", (STREAM % 50).astype(str)))
    made.fit([STREAM, names], np.ones((4_000, 1), np.float32), batch_size=200, shuffle=False, verbose=0)
    return made


def test_report_is_what_training_did(model: keras.Model) -> None:
    found = et.report(model)
    items, users = found.of("items"), found.of("users")
    assert (items.features, users.features) == (("item", "again"), ("users",))
    assert found.of("again") is items
    # Both features count each key.
    keys, counts = np.unique(np.repeat(STREAM, 2), return_counts=True)
    assert (items.dim, items.step, items.occurrences) == (8, 20, 8_000)
    assert (items.rows, items.candidates) == ((counts >= 3).sum(), (counts < 3).sum())
    assert (items.admitted, items.evicted, items.zero_rows) == (items.rows, 0, 0)
    assert items.sampled_rows == items.rows
    assert items.counts["100"] == counts.max()
    assert items.counts["50"] == np.median(counts[counts >= 3])
    assert (users.rows, users.zero_rows, users.norms) == (50, 50, {})
    table = model.layers[2].tables["items"]
    norms = np.linalg.norm(table.lookup(keys[counts >= 3]), axis=1)
    assert items.norms["90"] == pytest.approx(np.percentile(norms, 90), rel=1e-5)
    assert 0 <= items.idle_s["0"] <= items.idle_s["100"] < 600
    assert items.bytes == table.bytes()
    # Weights, slots and header.
    assert items.bytes_per_row > (8 + 8) * 4 + 16


def test_text_and_json(model: keras.Model) -> None:
    found = et.report(model)
    data = json.loads(json.dumps(found.to_json()))
    assert [table["name"] for table in data["tables"]] == ["items", "users"]
    assert data["tables"][0]["rows"] == found.of("items").rows
    assert data["tables"][0]["features"] == ["item", "again"]
    head, items, users = str(found).splitlines()
    assert head.split()[:4] == ["table", "features", "dim", "rows"]
    assert items.startswith("items  item, again    8  ")
    assert len(items) == len(head)
    assert f"{found.of('items').candidates:,}" in items
    assert users.split()[:5] == ["users", "users", "4", "50", "50"]


def test_sample_of_a_large_table_while_it_trains() -> None:
    table = et.Table(et.TableConfig("big", 4, optimizer=et.SGD(0.1)))
    count = 200_000
    keys = np.arange(count, dtype=np.int64)
    weights = np.repeat((keys % 100 / 50).astype(np.float32)[:, None], 4, axis=1)
    table.insert(keys, weights=weights)
    stop = threading.Event()

    def train() -> None:
        while not stop.is_set():
            table.lookup(keys[:10_000], training=True)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        found = et.report(table, sample=5_000).tables[0]
    finally:
        stop.set()
        thread.join()
    assert found.rows == count
    assert 4_000 < found.sampled_rows < 6_000
    # Norms are uniform from 0 to 3.96; the table counts no zeros, so that number comes from the sample.
    assert found.norms["50"] == pytest.approx(1.98, abs=0.15)
    assert found.norms["90"] == pytest.approx(3.56, abs=0.15)
    assert found.zero_rows == pytest.approx(count / 100, rel=0.5)


def test_reports_of_tables_and_modules() -> None:
    module = et.HashEmbeddingModule(2, name="city")
    module(tf.constant(["Bern", "Basel"]), training=True)
    assert et.report(module).of("city").features == ("city",)
    table = et.report({"city": module.table}).of("city")
    assert (table.features, table.rows) == ((), 2)
    assert et.report(iter([module.table])).of("city").rows == 2


@pytest.mark.parametrize("given", [[], keras.Sequential([keras.layers.Dense(1)]), 7])
def test_nothing_to_report(given: Any) -> None:
    with pytest.raises(ValueError, match=f"report: {type(given).__name__} has no tables, expected a model"):
        et.report(given)


def test_wrong_arguments(model: keras.Model) -> None:
    for sample in (0, 1.5, True):
        with pytest.raises(ValueError, match=r"report: sample is .*, expected a number of rows from 1 on"):
            et.report(model, sample=sample)
    with pytest.raises(KeyError, match="report of 'city', expected one of"):
        et.report(model).of("city")
