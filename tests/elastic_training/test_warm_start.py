# SPDX-License-Identifier: Apache-2.0
"""Tables that begin with the rows of other training systems."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
from graph_tools import convert
from graph_tools.errors import UnreadableError
from graph_tools.store.spec import TableSpec
from graph_tools.store.table_file import write_table
from graph_tools.tensors import ArrayTensor
from helpers.models import sparse_files
from helpers.models.training_exports import EXPORTS, KEYS, ROWS


def make_table(name: str = "item", dim: int = 3, key: str = "int64", **settings: Any) -> et.Table:
    return et.Table(et.TableConfig(name, dim, key=key, **settings))


def write_file(folder: Path, keys: Any, rows: np.ndarray, **more: Any) -> Path:
    keys = None if keys is None else ArrayTensor(keys)
    return write_table(folder, TableSpec(rows.shape[1], ArrayTensor(rows), keys=keys, **more)).path


@pytest.mark.parametrize("system", EXPORTS)
def test_rows_of_every_system(system: str, tmp_path: Path) -> None:
    export = EXPORTS[system](tmp_path / "in")
    convert(export.source, tmp_path / "out")
    table = make_table(optimizer=et.Adagrad(0.5), admission=et.CountFilter(4))
    (loaded,) = et.load_tables(table, tmp_path / "out", names={"item": export.name})
    assert (loaded.table, loaded.source, loaded.family, loaded.rows) == ("item", export.name, export.family, 5)
    np.testing.assert_array_equal(table.lookup(KEYS), ROWS)
    rows = table.read(KEYS)
    # New slots, and as admitted.
    np.testing.assert_array_equal(rows.slots, np.full((5, 3), 0.1, np.float32))
    assert rows.meta.numpy()[:, 1:].tolist() == [[4, 1]] * 5
    assert table.stats()["rows"] == 5


def test_model_begins_with_loaded_rows_and_trains_them(tmp_path: Path) -> None:
    keys = np.array(["ann", "bob", "eve"])
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    item = {key: [float(key), 1.0] for key in range(4)}
    sparse_files.write_tfra(tmp_path / "in", "items", [[item]])
    convert(tmp_path / "in", tmp_path / "out")
    users = write_file(tmp_path, np.array([key.encode() for key in keys], object), rows)
    inputs = keras.Input((), dtype="string", name="user"), keras.Input((), dtype="int64", name="item")
    layers = (
        et.HashEmbedding(2, et.SGD(0.5), evict=et.Ttl(days=1), name="users"),
        et.HashEmbedding(2, embeddings_initializer="zeros", name="items"),
    )
    joined = keras.layers.Concatenate()([layer(keys) for layer, keys in zip(layers, inputs, strict=True)])
    model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(joined))
    et.load_tables(model, tmp_path / "out", names={"items": "items"})
    et.load_tables(layers[0], users)
    batch = tf.constant(keys), tf.constant([0, 3, 9], tf.int64)
    expected = rows.sum(axis=1) + np.array([1.0, 4.0, 0.0])
    np.testing.assert_allclose(model(batch, training=False)[:, 0], expected, rtol=1e-6)
    model.compile("sgd", "mse")
    model.fit(batch, np.zeros((3, 1), np.float32), batch_size=3, verbose=0)
    after = layers[0].table.lookup(keys).numpy()
    np.testing.assert_allclose(after, rows - 0.5 * 2 / 3 * expected[:, None], rtol=1e-5)
    # A sweep does not take loaded rows for old ones.
    assert layers[0].table.evict() == 0


def test_frequencies_become_counts(tmp_path: Path) -> None:
    lines = [sparse_files.tensornet_adagrad_line(key, [1.0, 2.0], show=show) for key, show in ((5, 1), (6, 90))]
    blocks = [sparse_files.tensornet_text("AdaGrad", 2, lines if i == 2 else []) for i in range(8)]
    sparse_files.write_tensornet(tmp_path / "in" / "item", [blocks])
    convert(tmp_path / "in", tmp_path / "out")
    table = make_table(dim=2, admission=et.CountFilter(3))
    assert et.load_tables(table, tmp_path / "out")[0].counted
    # A key with a row was met as often as the filter asks.
    assert table.counts([5, 6, 7]).numpy().tolist() == [3, 90, 0]


def test_rows_that_are_there_get_new_slots_and_others_stay(tmp_path: Path) -> None:
    file = write_file(tmp_path, np.array([1, 2]), np.ones((2, 1), np.float32))
    table = make_table(dim=1, optimizer=et.Adagrad(0.1))
    table.insert([1, 3], weights=[[5.0], [6.0]], slots=[[7.0], [8.0]])
    et.load_tables({"item": table}, file)
    found = table.read([1, 2, 3])
    assert found.weights.numpy()[:, 0].tolist() == [1, 1, 6]
    np.testing.assert_allclose(found.slots[:, 0], [0.1, 0.1, 8.0])


def test_row_types_and_dense_tables(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(300, 8)).astype(np.float32)
    for row_type, tolerance in (("fp32", 0), ("bf16", 0.02), ("int8", 0.03)):
        table = make_table(dim=8)
        et.load_tables(table, write_file(tmp_path, None, rows, row_type=row_type))
        np.testing.assert_allclose(table.lookup(np.arange(300)), rows, atol=tolerance, err_msg=row_type)
        assert table.size() == 300


def test_large_table_in_bounded_memory_with_progress(tmp_path: Path) -> None:
    count = 200_000
    keys = np.random.default_rng(2).permutation(count).astype(np.int64) * 7
    rows = np.arange(count * 16, dtype=np.float32).reshape(count, 16)
    file = write_file(tmp_path, keys, rows)
    table, told = make_table(dim=16), []
    tracemalloc.start()
    et.load_tables(table, file, progress=lambda *done: told.append(done))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert told[-1] == ("item", count, count)
    assert [done for _, done, _ in told] == sorted({done for _, done, _ in told})
    assert len(told) > 2
    # Rows take 12.8 MB; blocks pass.
    assert most < 0.9 * rows.nbytes
    np.testing.assert_array_equal(table.lookup(keys[::97]), rows[::97])


def test_what_does_not_fit_is_refused_by_name_before_rows_are_written(tmp_path: Path) -> None:
    for name, dim in (("user", 2), ("item", 3)):
        sparse_files.write_hps(tmp_path / "in" / name, [1], [[0.5] * dim])
    convert(tmp_path / "in", tmp_path / "out")
    user, item = make_table("user", 2), make_table("item", 4)
    for tables, names, message in (
        ([user, item], None, r"table 'item': 'item' has rows of 3 numbers, expected 4"),
        ([user, make_table("item", key="string")], None, r"table 'item': 'item' has int64 keys, expected string keys"),
        (
            [user, make_table("city", 3)],
            None,
            r"no table 'city' for table 'city', expected one of 'item', 'user'; names=",
        ),
        ([user], {"city": "user"}, r"no table 'city', expected one of \['user'\]"),
        (keras.Sequential([keras.layers.Dense(1)]), None, "Sequential has no tables yet"),
    ):
        with pytest.raises(ValueError, match=message):
            et.load_tables(tables, tmp_path / "out", names=names)
    assert user.size() == 0
    with pytest.raises(FileNotFoundError, match=r"tables.json: does not exist, expected a folder that"):
        et.load_tables(user, tmp_path / "in")
    with pytest.raises(ValueError, match="one file for 2 tables"):
        et.load_tables([user, item], next((tmp_path / "out").glob("*.emb")))


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    file = write_file(tmp_path, np.array([1, 2]), np.ones((2, 3), np.float32))
    table, whole = make_table(), file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(whole[:-8])
    with pytest.raises(UnreadableError, match=str(file)):
        et.load_tables(table, file)
    place = whole.index(np.ones(3, np.float32).tobytes())
    file.write_bytes(whole[:place] + b"\x7f" + whole[place + 1 :])
    with pytest.raises(UnreadableError, match="checksum"):
        et.load_tables(table, file)
    bad = write_file(tmp_path, np.array([1, 2]), np.full((2, 3), np.nan, np.float32))
    with pytest.raises(ValueError, match=r"table 'item': row 0 of .* has NaN or infinity"):
        et.load_tables(table, bad)
    assert table.size() == 0
    (tmp_path / "tables.json").write_text(json.dumps({"schema": "cut_report/1", "tables": []}))
    with pytest.raises(ValueError, match="schema 'cut_report/1', expected 'convert_report/1'"):
        et.load_tables(table, tmp_path)
    (tmp_path / "tables.json").write_text("[")
    with pytest.raises(ValueError, match=r"tables.json: .*, expected the list of tables"):
        et.load_tables(table, tmp_path)
