# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
from elastic_training import _library

SINCE_2020_S = 1_577_836_800


def make_table(evict: et.Eviction, dim: int = 2) -> et.Table:
    config = et.TableConfig("items", dim, initializer=et.Constant(1.0), optimizer=et.SGD(0.0), eviction=evict)
    return et.Table(config)


def insert(table: et.Table, keys: Any, days_ago: Any, count: int = 1) -> None:
    keys = np.asarray(keys, np.int64)
    touch = int(time.time()) - SINCE_2020_S - np.broadcast_to(np.asarray(days_ago) * 86_400, keys.shape).astype(int)
    table.insert(keys, meta=np.stack([touch, np.full(keys.shape, count), np.ones(keys.shape, int)], axis=1))


def train(table: et.Table, keys: Any) -> None:
    lookup = {
        "tables": [table.handle],
        "keys": [tf.constant(keys, tf.int64)],
        "row_splits": [tf.constant([], tf.int64)],
        "weights": [tf.constant([], tf.float32)],
        "combiners": ["none"],
        "mask_zero": [False],
    }
    rows, places, firsts = _library.ops().elastic_table_lookup(**lookup, training=True, dims=[table.dim])
    _library.ops().elastic_table_update(
        **lookup, places=places, firsts=firsts, gradients=[tf.zeros_like(rows[0])], hyper=[tf.constant([0.0])]
    )


def test_sweep_by_hand_evicts_old_rows_which_then_read_the_default() -> None:
    table = make_table(et.Ttl(days=30, triggers=()))
    insert(table, range(100), days_ago=31)
    insert(table, range(100, 150), days_ago=29)
    assert table.evict() == 100
    assert table.size() == 50
    assert table.lookup([99, 100]).numpy().tolist() == [[0, 0], [1, 1]]
    assert table.stats()["eviction"]["sweep_evicted"] == 100


def test_updates_sweep_when_the_table_has_too_many_rows() -> None:
    table = make_table(et.Ttl(days=300, triggers=et.Rows(2_000, keep=0.5)))
    insert(table, range(3_000), days_ago=np.linspace(200, 1, 3_000))
    for _ in range(200):
        train(table, [2_999])
    stats = table.stats()
    assert stats["eviction"]["sweeps"] == 1
    assert abs(table.size() - 1_000) <= 2
    # The oldest have left.
    assert table.read([1_990]).meta[0, 2] == 0
    assert table.read([2_010]).meta[0, 2] == 1


def test_trigger_without_a_strategy_is_refused_with_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"evict: Rows\(limit=100, keep=0.9\) is a trigger, expected a strategy"):
        et.HashEmbedding(4, evict=et.Rows(100))


def test_updates_without_triggers_evict_nothing() -> None:
    table = make_table(et.Ttl(days=1, triggers=()))
    insert(table, range(100), days_ago=10)
    for _ in range(20):
        train(table, [1])
    assert table.size() == 100
    # Key 1 was just trained.
    assert table.evict() == 99


def test_keys_without_a_row_read_the_default_in_training_and_inference() -> None:
    filters = [et.CountFilter(3), et.CountingFilter(3, expected_keys=10), et.PoissonFilter(3)]
    for admit in filters:
        config = et.TableConfig("items", 2, initializer=et.Constant(1.0), default=et.Constant(0.5), admission=admit)
        table = et.Table(config)
        absent, new = [[0.5, 0.5]], [[1, 1]]
        for _ in range(2):
            assert table.lookup([7]).numpy().tolist() == absent
            assert table.lookup([7], training=True).numpy().tolist() == absent
            assert table.lookup([7], training=True).numpy().tolist() == absent
            assert table.lookup([7]).numpy().tolist() == absent
            assert table.lookup([7], training=True).numpy().tolist() == new
            assert table.lookup([7]).numpy().tolist() == new
            # Evicted, it is refused again until it has been counted anew.
            assert table.evict([7]) == 1
