# SPDX-License-Identifier: Apache-2.0
"""Tables and their ops: lookups, updates, contents, counters, and what they refuse."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
from elastic_training import _library
from elastic_training.table import ABSENT, CANDIDATE, FULL, Table


def make_table(**fields) -> et.Table:
    config = {"version": 1, "name": "user_id", "key": "int64", "dim": 4, "seed": 1, "optimizer": {"kind": "adagrad"}}
    return et.Table(config | fields)


class Step:
    """One lookup in training, and the update that belongs to it."""

    def __init__(self, table, keys, *, splits=(), weights=(), combiner="none", mask_zero=False):
        self.table = table
        self.inputs = {
            "tables": [table.handle],
            "keys": [tf.constant(keys, table.key_dtype)],
            "row_splits": [tf.constant(splits, tf.int64)],
            "weights": [tf.constant(weights, tf.float32)],
            "combiners": [combiner],
            "mask_zero": [mask_zero],
        }
        outputs, self.places, self.firsts = _library.ops().elastic_table_lookup(**self.inputs, training=True)
        self.output = outputs[0].numpy()

    def update(self, gradients, learning_rate=0.1):
        token = _library.ops().elastic_table_update(
            **self.inputs,
            places=self.places,
            firsts=self.firsts,
            gradients=[tf.constant(gradients, tf.float32)],
            hyper=[tf.constant([learning_rate], tf.float32)],
        )
        assert token.numpy() == 0


def adagrad(weights, slots, gradient):
    """Return new weights and slots, rounded as the table rounds them."""
    slots = slots + gradient * gradient
    return weights - np.float32(0.1) * gradient / np.sqrt(slots + np.float32(1e-7)), slots


def test_a_table_is_made_of_its_configuration():
    table = et.Table(et.TableConfig("item", 8, key="string", optimizer=et.Adam(0.1)))
    assert Step(table, ["a"]).output.shape == (1, 8)
    assert (table.name, table.dim, table.key_dtype) == ("item", 8, tf.string)


def test_training_makes_rows_and_inference_reads_them():
    table = make_table()
    keys = [7, -5, 2**63 - 1, -(2**63), 0]
    assert not table.lookup(keys).numpy().any()
    assert table.size() == 0
    trained = Step(table, keys).output
    assert len(np.unique(trained)) == 20
    assert np.abs(trained).max() <= 0.05
    np.testing.assert_array_equal(table.lookup(keys), trained)
    assert table.size() == 5
    # Rows depend on seed and key alone.
    np.testing.assert_array_equal(Step(make_table(), keys[::-1]).output, trained[::-1])
    assert not np.array_equal(Step(make_table(seed=2), keys).output, trained)


@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
def test_update_equals_the_formula_bit_for_bit(kind):
    table = make_table(dim=5, optimizer={"kind": kind})
    random = np.random.default_rng(0)
    expected = {}
    for _ in range(30):
        keys = random.integers(0, 50, 40)
        step = Step(table, keys)
        gradients = random.normal(size=(40, 5)).astype(np.float32)
        for key, row in zip(keys, step.output, strict=True):
            expected.setdefault(key, (row, np.full(5, 0.1, np.float32)))
            np.testing.assert_array_equal(row, expected[key][0])
        for key in set(keys):
            sum_ = np.zeros(5, np.float32)
            for gradient in gradients[keys == key]:
                sum_ = sum_ + gradient
            weights, slots = expected[key]
            if kind == "sgd":
                expected[key] = weights - np.float32(0.1) * sum_, slots
            else:
                expected[key] = adagrad(weights, slots, sum_)
        step.update(gradients)
    keys = np.array(list(expected))
    rows = table.read(keys)
    np.testing.assert_array_equal(rows.weights, [weights for weights, _ in expected.values()])
    if kind == "adagrad":
        np.testing.assert_array_equal(rows.slots, [slots for _, slots in expected.values()])
    assert rows.meta.numpy()[:, 1].sum() == 30 * 40
    assert table.step().numpy() == 30


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_pooling_equals_tensorflow(combiner):
    table = make_table()
    keys = np.array([3, 4, 3, 9, 9, 9])
    splits = [0, 3, 3, 6]
    weights = np.array([1, 2, 3, 0.5, 1, 1.5], np.float32)
    step = Step(table, keys, splits=splits, weights=weights, combiner=combiner)
    with tf.GradientTape() as tape:
        dense = tf.Variable(table.lookup(np.arange(10)))
        ragged = tf.RaggedTensor.from_row_splits(keys, splits)
        expected = tf.nn.embedding_lookup_sparse(
            dense,
            ragged.to_sparse(),
            tf.RaggedTensor.from_row_splits(weights, splits).to_sparse(),
            combiner=combiner,
        )
        expected = tf.concat([expected, tf.zeros([3 - len(expected), 4])], 0)
    np.testing.assert_allclose(step.output, expected, rtol=1e-5, atol=1e-8)
    assert not step.output[1].any()
    gradients = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    slices = tf.convert_to_tensor(tape.gradient(expected, dense, gradients))
    before = table.read([3, 4, 9])
    step.update(gradients)
    after = table.read([3, 4, 9])
    expected_weights, _ = adagrad(before.weights.numpy(), before.slots.numpy(), slices.numpy()[[3, 4, 9]])
    np.testing.assert_allclose(after.weights, expected_weights, rtol=1e-5)


def test_masked_keys_read_zeros_and_belong_to_no_bag():
    table = make_table()
    step = Step(table, [0, 5, 0, 6], splits=[0, 2, 4], combiner="mean", mask_zero=True)
    np.testing.assert_array_equal(step.output, table.lookup([5, 6]))
    step.update(np.ones((2, 4)))
    assert table.size() == 2
    flat = Step(table, [0, 5], mask_zero=True)
    assert not flat.output[0].any()
    assert flat.places[0].numpy()[0] == -1


def test_string_keys():
    table = make_table(key="string")
    keys = ["", "a", "b" * 300, "ünï\0code"]
    step = Step(table, [keys])
    step.update(np.ones((4, 4)))
    expected, _ = adagrad(step.output, np.full((4, 4), 0.1, np.float32), np.ones((4, 4), np.float32))
    np.testing.assert_array_equal(table.lookup([keys])[0], expected)
    names, rows = table.export()
    assert sorted(names) == sorted(key.encode() for key in keys)
    np.testing.assert_array_equal(rows.weights, table.lookup(names))
    with pytest.raises(tf.errors.InvalidArgumentError, match="'user_id': a key of 65536 bytes"):
        table.lookup(["x" * 65536])


def test_keys_below_the_threshold_read_the_default_row():
    table = make_table(admission={"kind": "count", "threshold": 3}, default={"kind": "constant", "value": 0.5})
    for _ in range(2):
        step = Step(table, [1, 2])
        assert (step.output == 0.5).all()
        step.update(np.ones((2, 4)))
    assert table.stats()["candidates"] == 2
    assert table.read([1]).meta.numpy()[0, 1:].tolist() == [2, CANDIDATE]
    assert (Step(table, [1]).output != 0.5).all()
    assert (table.lookup([1, 2, 3]).numpy() == 0.5).all(axis=1).tolist() == [False, True, True]
    assert table.stats()["candidates"] == 1
    assert table.size() == 1


def test_evicted_rows_are_not_updated():
    table = make_table()
    step = Step(table, [1, 2, 2])
    assert table.evict([2, 3]) == 1
    step.update(np.ones((3, 4)))
    assert table.read([1, 2]).meta.numpy()[:, 2].tolist() == [FULL, ABSENT]
    assert table.stats()["dropped_updates"] == 1
    assert not table.lookup([2]).numpy().any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_gradients_that_are_not_finite_are_refused(value):
    table = make_table()
    step = Step(table, [1, 2, 3])
    gradients = np.ones((3, 4), np.float32)
    gradients[1, 3] = value
    step.update(gradients)
    after = table.lookup([1, 2, 3]).numpy()
    assert (after != step.output).all(axis=1).tolist() == [True, False, True]
    assert table.stats()["refused_updates"] == 1

    strict = make_table(stop_on_nan=True)
    step = Step(strict, [1, 2, 3])
    with pytest.raises(tf.errors.InvalidArgumentError, match="'user_id': the gradient of key 2 is not finite"):
        step.update(gradients)
    np.testing.assert_array_equal(strict.lookup([1, 2, 3]), step.output)


def test_empty_batches():
    table = make_table()
    Step(table, []).update(np.zeros((0, 4)))
    step = Step(table, [], splits=[0, 0, 0], combiner="sum")
    assert not step.output.any()
    assert step.output.shape == (2, 4)
    step.update(np.ones((2, 4)))
    assert table.lookup(np.zeros((0, 3), np.int64)).shape == (0, 3, 4)
    assert table.size() == 0


def test_contents_survive_export_and_insert():
    table = make_table(admission={"kind": "count", "threshold": 2})
    random = np.random.default_rng(0)
    for _ in range(3):
        step = Step(table, random.integers(0, 3000, 2000))
        step.update(random.normal(size=(2000, 4)))
    copy = make_table(admission={"kind": "count", "threshold": 2})
    total = 0
    for part in range(3):
        keys, rows = table.export(part, 3)
        copy.insert(keys, rows.weights, rows.slots, rows.meta)
        total += len(keys)
    assert total == copy.size() + copy.stats()["candidates"] == table.size() + table.stats()["candidates"]
    keys = np.arange(3000)
    for one, other in zip(vars(table.read(keys)).values(), vars(copy.read(keys)).values(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_growth_keeps_all_rows():
    table = make_table(dim=2, optimizer={"kind": "sgd"})
    keys = np.random.default_rng(0).permutation(200_000) * 1_000_003
    for part in np.split(keys, 4):
        step = Step(table, part)
        step.update(np.ones((len(part), 2)))
        np.testing.assert_array_equal(table.lookup(part), step.output - np.float32(0.1))
    assert table.size() == 200_000
    assert (table.read(keys).meta.numpy()[:, 2] == FULL).all()
    assert not table.lookup(keys + 1).numpy().any()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dim": 0}, "table 'user_id': dim is 0, expected an integer from 1"),
        ({"dims": 4}, "table 'user_id': unknown field 'dims'"),
        ({"key": "int32"}, "table 'user_id': key is \"int32\", expected one of 'int64', 'string'"),
        ({"optimizer": {"kind": "adma"}}, "table 'user_id' optimizer: kind is 'adma', expected one of 'sgd'"),
        ({"optimizer": {"kind": "sgd", "beta": 1}}, "table 'user_id' optimizer sgd: unknown field 'beta'"),
        ({"admission": {"kind": "maybe"}}, "table 'user_id' admission: kind is 'maybe'"),
        ({"initializer": {"kind": "ones"}}, "table 'user_id' initializer: kind is \"ones\""),
    ],
)
def test_wrong_configurations_are_refused(fields, message):
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        make_table(**fields)
    assert message in str(error.value)


def test_wrong_inputs_are_refused():
    table = make_table()
    step = Step(table, [1, 2])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"'user_id': gradients of shape \[2,3\], expected \[2,4\]"
    ):
        step.update(np.ones((2, 3)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="'user_id': row splits do not ascend"):
        Step(table, [1, 2], splits=[0, 3], combiner="sum")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"weights have shape \[1,3\], expected \[1,4\]"):
        table.insert([1], np.ones((1, 3)))
    step.firsts = [tf.constant([1, 0])]
    with pytest.raises(tf.errors.InvalidArgumentError, match="'user_id': firsts has 1 at 0"):
        step.update(np.ones((2, 4)))


@pytest.mark.parametrize("kind", ["uniform", "normal", "truncated_normal"])
def test_initial_rows_have_their_distribution(kind):
    parameters = {"low": -1, "high": 2} if kind == "uniform" else {"stddev": 2}
    table = make_table(dim=16, initializer={"kind": kind} | parameters)
    values = np.sort(Step(table, np.arange(4000)).output.ravel()).astype(np.float64)
    quantiles = (np.arange(len(values)) + 0.5) / len(values)
    if kind == "uniform":
        found = (values + 1) / 3
    else:
        normal = np.vectorize(NormalDist(0, 2).cdf)
        low, high = (normal(-4.0), normal(4.0)) if kind == "truncated_normal" else (0, 1)
        found = (normal(values) - low) / (high - low)
    # Kolmogorov and Smirnov's distance; 1.95 is exceeded once in a thousand times.
    assert np.abs(found - quantiles).max() < 1.95 / np.sqrt(len(values))


def test_keys_of_another_kind_are_named():
    for keys in (["a"], tf.constant(["a"])):
        for use in (Table.evict, Table.read, Table.lookup, Table.counts):
            with pytest.raises(ValueError, match="table 'user_id': keys are not 64-bit integers"):
                use(make_table(), keys)


def test_a_table_is_shown_by_its_name_and_size():
    table = make_table()
    table.lookup([1, 2], training=True)
    assert repr(table) == "<Table 'user_id': 4 columns, int64 keys, 2 rows>"


def test_library_that_is_older_than_the_package_is_named():
    with pytest.raises(RuntimeError, match=r"training.so: has no op 'elastic_table_of_tomorrow'.*'make lib'"):
        _ = _library.ops().elastic_table_of_tomorrow
