# SPDX-License-Identifier: Apache-2.0
"""Tables whose optimizer has group lasso: rows become zero, are given back, and come back."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
from elastic_training import _library
from elastic_training.table import FULL, RELEASED
from helpers.elastic_training.optimizer_formulas import Formula, Setting
from helpers.elastic_training.optimizer_probe import config_of

KEYS = np.array([2**61 + 7 * number for number in range(40)])


def make_table(setting: Setting, dim: int = 8, **fields) -> et.Table:
    config = {"version": 1, "name": "user_id", "key": "int64", "dim": dim, "seed": 1, "optimizer": config_of(setting)}
    return et.Table({**config, "initializer": {"kind": "zeros"}, **fields})


def train(table: et.Table, keys, gradients, rate: float = 0.1) -> None:
    inputs = {
        "tables": [table.handle],
        "keys": [tf.constant(keys, tf.int64)],
        "row_splits": [tf.constant([], tf.int64)],
        "weights": [tf.constant([], tf.float32)],
        "combiners": ["none"],
        "mask_zero": [False],
    }
    _, places, firsts = _library.ops().elastic_table_lookup(**inputs, training=True)
    _library.ops().elastic_table_update(
        **inputs,
        places=places,
        firsts=firsts,
        gradients=[tf.constant(gradients, tf.float32)],
        hyper=[tf.constant([rate], tf.float32)],
    )


@pytest.mark.parametrize("kind", ["sgd", "adagrad", "rowwise_adagrad", "adam", "ftrl"])
def test_rows_of_a_table_are_those_of_the_formula(kind):
    setting = Setting(kind, l1=0.02, l2=0.05, l21=0.8, release_after=15)
    table = make_table(setting)
    formula = Formula(setting, np.zeros((len(KEYS), 8), np.float32))
    random = np.random.default_rng(0)
    pull = random.normal(0, 0.3, (len(KEYS), 8)) * (np.arange(len(KEYS))[:, None] % 4 == 0)
    released = 0
    for step in range(1, 401):
        rows = np.flatnonzero(random.random(len(KEYS)) < 0.3)
        gradients = (random.normal(0, 0.2, (len(rows), 8)) + pull[rows]).astype(np.float32)
        released += len(formula.step(rows, gradients, 0.1, step))
        train(table, KEYS[rows], gradients)
    np.testing.assert_array_equal(table.lookup(KEYS), formula.x)
    stats = table.stats()
    assert stats["released"] == released > 20
    assert stats["rows"] == len(KEYS)
    zero = ~formula.x.any(axis=1)
    assert stats["zero_rows"] == zero.sum() > 0
    contents = table.read(KEYS)
    full = contents.meta.numpy()[:, 2] == FULL
    assert stats["released_rows"] == (~full).sum()
    np.testing.assert_array_equal(contents.slots.numpy()[full, :-1], formula.slots()[full])


def test_a_released_row_costs_no_slots_and_comes_back_from_zero():
    table = make_table(Setting("adam", l21=1e3, release_after=2), dim=64)
    for _ in range(3):
        train(table, KEYS, np.full((len(KEYS), 64), 0.1))
    assert table.stats()["released_rows"] == len(KEYS)
    assert (table.read(KEYS).meta.numpy()[:, 2] == RELEASED).all()
    assert not table.lookup(KEYS).numpy().any()
    train(table, KEYS[:1], np.full((1, 64), 1e6))
    row = table.read(KEYS[:1])
    assert row.weights.numpy().all()
    assert row.slots.numpy()[0, 128] == 1, "Adam counts the updates of the row from the beginning"
    assert table.stats()["released_rows"] == len(KEYS) - 1


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("kind", ["sgd", "adagrad", "rowwise_adagrad", "adam", "ftrl"])
def test_a_gradient_whose_square_is_not_finite_leaves_the_row_as_it_is(kind, value):
    table = make_table(Setting(kind, l21=1e-3))
    train(table, KEYS[:2], np.ones((2, 8)))
    before = table.read(KEYS[:2])
    gradients = np.ones((2, 8))
    gradients[0, 3] = value
    train(table, KEYS[:2], gradients)
    after = table.read(KEYS[:2])
    np.testing.assert_array_equal(after.weights[0], before.weights[0])
    np.testing.assert_array_equal(after.slots[0], before.slots[0])
    assert not np.array_equal(after.weights[1], before.weights[1])
    assert table.stats()["refused_updates"] == 1


@pytest.mark.parametrize("rate", [-0.1, np.nan, np.inf])
def test_a_learning_rate_that_would_ruin_rows_is_refused(rate):
    table = make_table(Setting("adagrad"))
    train(table, KEYS[:2], np.ones((2, 8)))
    before = table.lookup(KEYS[:2]).numpy()
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"'user_id': a learning rate of .*, expected a finite"):
        train(table, KEYS[:2], np.ones((2, 8)), rate=rate)
    np.testing.assert_array_equal(table.lookup(KEYS[:2]), before)
