# SPDX-License-Identifier: Apache-2.0
"""Exports have the rows that were trained, run in stock TensorFlow, and become live artifacts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
from elastic_training.export.contents import read_contents
from graph_tools import optimize
from graph_tools.readers import read_model
from graph_tools.store.lineage import read_lineage
from helpers.elastic.exported import batch, check_published, ranker, train

# Runs in a process without elastic_training.
STOCK = """
import sys, numpy as np, tensorflow as tf
loaded = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
features = np.load(sys.argv[2], allow_pickle=True).item()
np.save(sys.argv[3], loaded(**{name: tf.constant(value) for name, value in features.items()})["score"].numpy())
assert not any(name.startswith("elastic_training") for name in sys.modules)
"""


@pytest.fixture(scope="module")
def model() -> keras.Model:
    trained = ranker()
    train(trained, 1)
    return trained


@pytest.fixture(scope="module")
def exported(model: keras.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "model"
    et.export(model, path)
    return path


def test_rows_are_those_that_were_trained(model: keras.Model, exported: Path, tmp_path: Path) -> None:
    tables = read_model(exported).sparse_tables
    assert {name: (table.key_dtype.name, table.dim) for name, table in tables.items()} == {
        "user_rows": ("int64", 8),
        "item": ("object", 4),
        "tags": ("int64", 2),
    }
    check_published(model, exported, tmp_path)


def test_stock_tensorflow_gives_the_same_scores(model: keras.Model, exported: Path, tmp_path: Path) -> None:
    # Half of the users are new.
    features, _ = batch(2, first_user=30)
    np.save(tmp_path / "features.npy", {name: value.numpy() for name, value in features.items()})  # type: ignore[arg-type]
    files = [str(exported), str(tmp_path / "features.npy"), str(tmp_path / "scores.npy")]
    subprocess.run([sys.executable, "-c", STOCK, *files], check=True, timeout=120)
    expected = model(features, training=False).numpy()
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), expected, rtol=1e-5, atol=1e-6)
    assert np.ptp(expected) > 1e-3


def test_optimizing_fuses_all_lookups_and_follows_all_weights(exported: Path, tmp_path: Path) -> None:
    report = optimize(exported, tmp_path / "artifact", live=True, precision="fp32", accept_weak_proof=True)
    ops = {node.op for node in read_model(tmp_path / "artifact").graph}
    assert not {op for op in ops if "LookupTable" in op or "Gather" in op}
    assert "RecEmbeddingGroup" in ops
    contents = read_contents(exported)
    live = report.to_json()["live"]
    assert {table["source"] for table in live["tables"]} == {table.name for table in contents.tables}
    assert len(contents.variables) == 4
    assert read_lineage(tmp_path / "artifact") == read_lineage(exported)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("form", ["dense", "ragged", "ragged_weights", "masked"])
def test_pooled_rows_equal_those_of_training(combiner: str, form: str, tmp_path: Path) -> None:
    embed = et.HashEmbeddingModule(3, combiner=combiner, mask_zero=form == "masked", name="tags")
    keys = tf.constant([[3, 1, 0], [0, 0, 0], [1, 1, 9]], tf.int64)

    def rows(features: dict[str, tf.Tensor]) -> tf.Tensor:
        if form in ("dense", "masked"):
            return embed(features["keys"], training=False)
        ragged = tf.RaggedTensor.from_tensor(features["keys"], padding=0)
        weights = tf.cast(ragged, tf.float32) / 4 if form == "ragged_weights" else None
        return embed(ragged, weights=weights, training=False)

    embed(keys[:, :2], training=True)
    expected = rows({"keys": keys}).numpy()
    et.export(embed, tmp_path / "m", inputs={"keys": tf.TensorSpec([None, None], tf.int64)}, function=rows)
    found = tf.saved_model.load(str(tmp_path / "m")).signatures["serving_default"](keys=keys)["output"].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    assert np.abs(expected).max() > 0


def test_absent_keys_read_the_default_row(tmp_path: Path) -> None:
    table = et.Table(et.TableConfig("t", 2, default=et.Constant(0.5)))
    embed = et.HashEmbeddingModule(table=table)
    embed(tf.constant([1, 2], tf.int64), training=True)
    keys = {"keys": tf.TensorSpec([None], tf.int64)}
    et.export(embed, tmp_path / "m", inputs=keys, function=lambda found: embed(found["keys"], training=False))
    assert read_model(tmp_path / "m").sparse_tables["t"].absent.kind == "row"
    serve = tf.saved_model.load(str(tmp_path / "m")).signatures["serving_default"]
    found = serve(keys=tf.constant([2, 7], tf.int64))["output"].numpy()
    np.testing.assert_array_equal(found, [table.read([2]).weights.numpy()[0], [0.5, 0.5]])


def test_tables_with_one_name_are_two_tables(tmp_path: Path) -> None:
    key = keras.Input((), dtype="int64", name="user")
    features = [{"user": et.Feature(dim, table="user id")} for dim in (4, 1)]
    deep, wide = (et.FeatureEmbeddings(feature)({"user": key}) for feature in features)
    model = keras.Model(key, keras.layers.Concatenate()([deep["user"], wide["user"]]))
    model(tf.constant([1, 2, 3], tf.int64), training=True)
    tables = [table for layer in model.layers for table in getattr(layer, "tables", {}).values()]
    for table in tables:
        table.insert([5, 6])
    et.export(model, tmp_path / "m")
    found = {table.name: table.dim for table in read_contents(tmp_path / "m").tables}
    assert found.keys() == {"user_id", "user_id_1"}
    assert set(found.values()) == {4, 1}
    check_published(model, tmp_path / "m", tmp_path)


def test_what_cannot_be_exported_is_named(exported: Path, model: keras.Model, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="exists, expected a new folder"):
        et.export(model, exported)
    embed = et.HashEmbeddingModule(2)
    with pytest.raises(ValueError, match=r"HashEmbeddingModule: no inputs, expected the argument inputs="):
        et.export(embed, tmp_path / "m")
    traced = tf.function(lambda keys: embed(keys, training=False))
    traced(tf.constant([1, 2], tf.int64))
    keys = {"keys": tf.TensorSpec([None], tf.int64)}
    traced.get_concrete_function(tf.TensorSpec([None], tf.int64))
    with pytest.raises(ValueError, match="ElasticTableLookup in a function that was traced before"):
        et.export(embed, tmp_path / "m", inputs=keys, function=lambda found: traced(found["keys"]))
    ragged = keras.Input((None,), dtype="int64", name="tags", ragged=True)
    pooled = keras.Model(ragged, et.HashEmbedding(2, combiner="sum")(ragged))
    with pytest.raises(ValueError, match="input 'tags': ragged or sparse, expected dense"):
        et.export(pooled, tmp_path / "m")
    with pytest.raises(ValueError, match="input 'user id': expected a name of letters"):
        et.export(embed, tmp_path / "m", inputs={"user id": tf.TensorSpec([None], tf.int64)})
    dense = keras.Input((2,), name="x")
    with pytest.raises(ValueError, match="no table is looked up"):
        et.export(keras.Model(dense, keras.layers.Dense(1)(dense)), tmp_path / "m")
    assert list(tmp_path.iterdir()) == []
