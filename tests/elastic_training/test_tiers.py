# SPDX-License-Identifier: Apache-2.0
"""Tables whose coldest rows are on SSD, from Python."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et

MEMORY = 1 << 20
DIM = 8


def _config(name: str, **settings: Any) -> et.TableConfig:
    return et.TableConfig(name, DIM, optimizer=et.Adagrad(0.1), **settings)


def _train(layer: Any, batches: int, keys: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(batches):
        batch = tf.constant(random.integers(0, keys, 1000))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(batch, training=True) ** 2)
        tape.gradient(loss, layer.trainable_variables)


def _contents(table: et.Table, keys: int) -> list[np.ndarray]:
    rows = table.read(np.arange(keys))
    # Times of touches depend on the clock.
    return [rows.weights.numpy(), rows.slots.numpy(), rows.meta.numpy()[:, 1:]]


def _equal(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_layer_trains_as_in_memory(tmp_path: Path) -> None:
    tiered = et.HashEmbedding(DIM, et.Adagrad(0.1), table="ids", tiers=et.Tiers("1MiB", tmp_path))
    plain = et.HashEmbedding(DIM, et.Adagrad(0.1), table="ids")
    for layer in (tiered, plain):
        _train(layer, 40, 20_000, seed=1)
    assert _equal(_contents(tiered.table, 20_000), _contents(plain.table, 20_000))
    keys = np.arange(0, 20_000, 7)
    tiered.table.prefetch(keys)
    assert np.array_equal(tiered(keys), plain(keys))
    counts = et.report([tiered.table]).tables[0].tiers
    assert counts["ssd_rows"] > 1000
    assert counts["memory_rows"] + counts["ssd_rows"] == plain.table.size() == tiered.table.size()
    assert counts["log"]["read"] > 0
    assert tiered.table.stats()["used_bytes"] <= MEMORY


def test_checkpoints_span_both_tiers(tmp_path: Path) -> None:
    layer = et.HashEmbedding(DIM, et.Adagrad(0.1), table="ids", tiers=et.Tiers(MEMORY, tmp_path / "ssd"))
    checkpoints = et.Checkpoints(tmp_path / "checkpoints", layer=layer, full_every=3)
    saved = []
    for seed in range(3):
        _train(layer, 25, 20_000, seed)
        saved.append((checkpoints.save(), _contents(layer.table, 20_000)))
    _train(layer, 5, 20_000, seed=9)
    for path, contents in saved:
        checkpoints.restore(path)
        assert _equal(_contents(layer.table, 20_000), contents)
        assert layer.table.stats()["tiers"]["ssd_rows"] > 100
        assert layer.table.stats()["used_bytes"] <= MEMORY
    plain = et.HashEmbedding(DIM, et.Adagrad(0.1), table="ids")
    plain(tf.constant([1]))
    et.Checkpoints(tmp_path / "checkpoints", layer=plain).restore()
    assert _equal(_contents(plain.table, 20_000), saved[-1][1])


def test_checkpoints_may_leave_rows_on_ssd(tmp_path: Path) -> None:
    def make() -> tuple[Any, et.Checkpoints]:
        layer = et.HashEmbedding(DIM, et.Adagrad(0.1), table="ids", tiers=et.Tiers(MEMORY, tmp_path / "ssd"))
        layer(tf.constant([1]), training=False)
        return layer, et.Checkpoints(tmp_path / "saved", layer=layer, keep=2, full_every=2, copy_ssd=False)

    layer, checkpoints = make()
    saved = []
    for seed in range(4):
        _train(layer, 25, 20_000, seed)
        saved.append((checkpoints.save(), _contents(layer.table, 20_000)))
    meta = np.fromfile(saved[2][0] / "tables/0000/part-00000/meta.bin", np.uint32).reshape(-1, 3)
    assert (meta[:, 2] >= 1 << 31).sum() > 1000
    _train(layer, 10, 20_000, seed=9)
    for path, contents in saved[2:]:
        checkpoints.restore(path)
        assert _equal(_contents(layer.table, 20_000), contents)
    _train(layer, 10, 20_000, seed=10)
    # Another table begins with the same folder, as in a new process.
    tf.raw_ops.DestroyResourceOp(resource=layer.table.handle, ignore_lookup_error=False)
    layer, checkpoints = make()
    with pytest.raises(tf.errors.FailedPreconditionError, match="restore a checkpoint"):
        layer.table.insert(np.arange(30_000))
    assert checkpoints.restore() == saved[3][0]
    assert _equal(_contents(layer.table, 20_000), saved[3][1])
    _train(layer, 20, 20_000, seed=11)
    checkpoints.save()
    checkpoints.save()
    checkpoints.save()
    assert len(list((tmp_path / "ssd" / "ids").glob("promise-*"))) == len(checkpoints.names())
    plain = et.HashEmbedding(DIM, et.Adagrad(0.1), table="ids")
    plain(tf.constant([1]), training=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="expected a table with tiers"):
        et.Checkpoints(tmp_path / "saved", layer=plain).restore()


def test_eviction_and_admission_see_rows_on_ssd(tmp_path: Path) -> None:
    rows = et.Table(
        _config(
            "rows",
            tiers=et.Tiers(MEMORY, tmp_path),
            admission=et.CountFilter(2),
            eviction=et.L2Norm(1.0, triggers=()),
        )
    )
    keys = np.arange(20_000)
    norms = np.where(keys % 2 == 0, 0.1, 2.0)
    weights = np.zeros([20_000, DIM], np.float32)
    weights[:, 0] = norms
    for part in np.array_split(keys, 20):
        rows.insert(part, weights[part])
    assert rows.stats()["tiers"]["ssd_rows"] > 1000
    # They need no second admission.
    assert np.array_equal(rows.lookup(keys[:500], training=True).numpy()[:, 0], weights[:500, 0])
    assert rows.evict() == 10_000
    assert rows.size() == 10_000
    assert np.array_equal(rows.read(keys).weights.numpy()[:, 0], np.where(norms > 1, weights[:, 0], 0))
    assert rows.evict(keys) == 10_000
    assert rows.stats()["tiers"]["log"]["rows"] == 0


def test_models_with_tiers_are_saved_and_loaded(tmp_path: Path) -> None:
    inputs = keras.Input((), dtype="int64")
    layer = et.HashEmbedding(4, table="ids", tiers=et.Tiers(MEMORY, tmp_path / "ssd"))
    model = keras.Model(inputs, layer(inputs))
    layer.table.insert(np.arange(100), np.ones([100, 4]))
    model.save(tmp_path / "model.keras")
    # The folder is that of one table.
    with pytest.raises(tf.errors.OpError, match="in use by another table"):
        keras.saving.load_model(tmp_path / "model.keras")


def test_prefetch_runs_in_a_dataset(tmp_path: Path) -> None:
    table = et.Table(_config("rows", tiers=et.Tiers(MEMORY, tmp_path)))
    for part in np.array_split(np.arange(20_000), 20):
        table.insert(part)

    def ahead(keys: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([table.prefetch(keys)]):
            return tf.identity(keys)

    stream = tf.data.Dataset.range(20_000).batch(1000).map(ahead).prefetch(2)
    assert sum(len(table.lookup(keys, training=True)) for keys in stream) == 20_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lots", "ssd"), "memory is 'lots', expected bytes"),
        ((1000, "ssd"), "memory is 1000, expected an integer from 1048576"),
        (("8GB", ""), "ssd is '', expected the path of a folder"),
        (("8GB", "ssd", "8XB"), "ssd_limit is '8XB'"),
        ((True, "ssd"), "memory is True"),
    ],
)
def test_wrong_settings_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        et.Tiers(*arguments)


def test_sizes_may_have_units() -> None:
    assert et.Tiers("8GB", "x").memory == 8 * 10**9
    assert et.Tiers("1.5 MiB", "x", "2TB").ssd_limit == 2 * 10**12


def test_what_does_not_fit_is_an_error(tmp_path: Path) -> None:
    limited = et.Table(_config("limited", tiers=et.Tiers(MEMORY, tmp_path, ssd_limit=1 << 20)))
    with pytest.raises(tf.errors.ResourceExhaustedError, match=r"table .limited.: .*raise ssd_limit"):
        for first in itertools.count(0, 1000):
            limited.insert(np.arange(first, first + 1000))
    small = et.Table(_config("small", tiers=et.Tiers(MEMORY, tmp_path)))
    with pytest.raises(tf.errors.ResourceExhaustedError, match="raise memory, or evict rows"):
        for first in itertools.count(0, 1000):
            small.insert(np.arange(first, first + 1000))
