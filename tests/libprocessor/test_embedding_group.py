# SPDX-License-Identifier: Apache-2.0
"""`RecEmbeddingGroup` in stock TensorFlow computes what TensorFlow's own ops compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.plans import EmbeddingPlan
from graph_tools.plans.embedding_parts import Add, Copy, FastHash, GroupOutput, Key, Linear, Lookup, Mod
from graph_tools.store import TableReader
from graph_tools.store.layout import ROW_TYPES
from graph_tools.tensors import Array, ArrayTensor
from helpers.models.embedding_tables import rows_of
from helpers.oracles.embedding_groups import Group, table_of
from helpers.oracles.op_graphs import assert_close

BATCHES = (0, 1, 2, 17, 128, 509)
COMBINERS = ("sum", "mean", "sqrtn")


def words(batch: int, seed: int, empty: bool = True) -> Array:
    """Make strings [batch], some of them empty and some longer than a tstring holds inside."""
    random = np.random.default_rng(seed)
    made = np.empty(batch, object)
    made[:] = [b"w%d" % n * (n % 4 if empty else 1) for n in random.integers(0, 10**9, batch)]
    return made


def bags(batch: int, most: int, seed: int, *, rows: int = 1000, least: int = 0) -> tf.RaggedTensor:
    """Make a ragged int64 [batch, None]."""
    random = np.random.default_rng(seed)
    lengths = random.integers(least, most + 1, batch)
    return tf.RaggedTensor.from_row_lengths(random.integers(0, rows, lengths.sum()), lengths)


def test_strings_to_the_inputs_of_wide_and_deep(tmp_path: Path) -> None:
    # As feature_column has it: an empty string counts as none, and reads as zeros.
    deep = [rows_of(100 + 10 * i, dim, seed=i) for i, dim in enumerate((16, 16, 5, 33))]
    wide = [rows_of(100 + 10 * i, 1, seed=9 + i) for i in range(4)]
    tables = [table_of(tmp_path, rows) for rows in deep + wide]
    keys = tuple(Key(i, ignore="", steps=(FastHash(100 + 10 * i),)) for i in range(4))
    offsets = np.cumsum([3, 16, 16, 5])
    columns = (
        *(Lookup(i, i, 0, int(offsets[i]), "mean") for i in range(4)),
        Copy(4, 0, 0, 3),
        *(Lookup(i, 4 + i, 1, 0, "sum", accumulate=True) for i in range(4)),
        Linear(4, 1, 0, ((0.25,), (-1.5,), (3.0,)), accumulate=True),
    )
    plan = EmbeddingPlan((GroupOutput(73), GroupOutput(1, (0.625,))), keys, columns)
    plan.check(5, [16, 16, 5, 33, 1, 1, 1, 1])
    group = Group(plan, [object] * 4 + [np.float32], tables, outputs=2)
    for batch in (*BATCHES, 1):
        features = [words(batch, seed=i) for i in range(4)]
        numbers = rows_of(batch, 3, seed=batch)
        ids = [np.array(tf.strings.to_hash_bucket_fast(f, 100 + 10 * i)) for i, f in enumerate(features)]
        shown = [(f != b"")[:, None] for f in features]
        columns_of = [np.where(shown[i], deep[i][ids[i]], 0) for i in range(4)]
        found = group(*features, numbers)
        np.testing.assert_array_equal(found[0], np.concatenate([numbers, *columns_of], 1))
        sums = sum(np.where(shown[i], wide[i][ids[i]], 0) for i in range(4))
        assert_close(found[1], 0.625 + sums + numbers @ [[0.25], [-1.5], [3.0]])


@pytest.mark.parametrize("row_type", ROW_TYPES)
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("layout", ["dense", "sparse", "ragged", "segments"])
def test_combiners_equal_the_formula(tmp_path: Path, layout: str, combiner: str, row_type: str) -> None:
    dims = (1, 3, 16, 100) if row_type == "fp32" else (1, 17)
    tables = [table_of(tmp_path, rows_of(1000, dim, seed=dim), row_type=row_type) for dim in dims]
    rows = [TableReader(table).rows(np.arange(1000)) for table in tables]
    key = {
        "dense": Key(0),
        "sparse": Key(0, "sparse", indices=2, shape=3),
        "ragged": Key(0, "ragged", row_splits=2),
        "segments": Key(0, "segments", segment_ids=2, rows=3),
    }[layout]
    types = [np.int64, np.float32, *{"dense": [], "ragged": [np.int32]}.get(layout, [np.int64, np.int64])]
    offsets = [0, *np.cumsum(dims)]
    plain = [Lookup(0, i, 0, int(offsets[i]), combiner) for i in range(len(dims))]
    weighted = [Lookup(0, i, 1, int(offsets[i]), combiner, weights=1) for i in range(len(dims))]
    outputs = (GroupOutput(int(offsets[-1])), GroupOutput(int(offsets[-1])))
    group = Group(EmbeddingPlan(outputs, (key,), (*plain, *weighted)), types, tables, outputs=2)
    for batch in BATCHES[1:]:
        most = 5
        ids = bags(batch, most, batch, least=most if layout == "dense" else 1)
        weights = ids.with_values(np.random.default_rng(batch).normal(size=ids.values.shape).astype(np.float32))
        sparse = ids.to_sparse()
        features: list[Any] = [ids.values, weights.values]
        if layout == "dense":
            features = [ids.to_tensor(), weights.to_tensor()]
        elif layout == "sparse":
            features += [sparse.indices, sparse.dense_shape]
        elif layout == "ragged":
            features += [ids.row_splits]
        else:
            features += [ids.value_rowids(), batch]
        found = group(*features)
        for output, given in zip(found, (None, weights.to_sparse()), strict=True):
            expected = [tf.nn.embedding_lookup_sparse(row, sparse, given, combiner) for row in rows]
            # A sum of weights near 0 makes large numbers of what is rounded.
            np.testing.assert_allclose(output, np.concatenate(expected, 1), rtol=1e-3 if given else 1e-5, atol=1e-5)


@pytest.mark.parametrize("combiner", COMBINERS)
def test_rows_without_values_are_zero_or_read_a_key(tmp_path: Path, combiner: str) -> None:
    rows = rows_of(1000, 7)
    table = table_of(tmp_path, rows)
    key = Key(0, "sparse", indices=2, shape=3, ignore_negative=True)
    columns = (
        Lookup(0, 0, 0, 0, combiner),
        Lookup(0, 0, 0, 7, combiner, empty=5),
        Lookup(0, 0, 0, 14, combiner, weights=1, positive_weights=combiner != "sum"),
        Lookup(0, 0, 0, 21, combiner, weights=1, positive_weights=combiner != "sum", empty=5),
        Lookup(0, 0, 0, 0, combiner, empty=5, accumulate=True),
    )
    types = [np.int64, np.float32, np.int64, np.int64]
    group = Group(EmbeddingPlan((GroupOutput(28),), (key,), columns), types, [table])
    for batch in (1, 19, 300):
        ids = bags(batch, 2, batch)
        random = np.random.default_rng(batch)
        ids = ids.with_values(np.where(random.random(ids.values.shape) < 0.3, -1, ids.values)).to_sparse()
        weights = tf.SparseTensor(ids.indices, random.normal(size=ids.values.shape).astype(np.float32), ids.dense_shape)
        expected = [
            tf.nn.safe_embedding_lookup_sparse(rows, ids, given, combiner, default)
            for given in (None, weights)
            for default in (None, 5)
        ]
        expected[0] = expected[0] + expected[1]
        assert_close(group(ids.values, weights.values, ids.indices, ids.dense_shape)[0], np.concatenate(expected, 1))


def test_weights_with_a_sum_of_zero(tmp_path: Path) -> None:
    rows = rows_of(10, 3)
    plan = EmbeddingPlan((GroupOutput(3),), (Key(0),), (Lookup(0, 0, 0, 0, "mean", weights=1),))
    group = Group(plan, [np.int32, np.float32], [table_of(tmp_path, rows)])
    found = group([[3, 4], [5, 6]], [[1, -1], [0.5, 0.5]])[0]
    assert_close(found, [[0, 0, 0], (rows[5] + rows[6]) / 2])


def test_values_side_by_side_and_sequences(tmp_path: Path) -> None:
    rows, other = rows_of(50, 6), rows_of(40, 3, seed=1)
    tables = [table_of(tmp_path, rows), table_of(tmp_path, other)]
    keys = (Key(0, ignore=0), Key(1, steps=(Mod(40),)))
    columns = (
        Lookup(0, 0, 0, 2),
        Lookup(0, 0, 1, 0),
        Lookup(1, 1, 1, 6),
        Lookup(1, 1, 1, 0, accumulate=True),
        Lookup(0, 0, 2, 0, "sum"),
    )
    outputs = (GroupOutput(20, tuple(range(20))), GroupOutput(9, sequence=0), GroupOutput(6))
    group = Group(EmbeddingPlan(outputs, keys, columns), [np.int32, np.int64], tables, outputs=3)
    for batch in BATCHES:
        random = np.random.default_rng(batch)
        ids, more = random.integers(0, 50, (batch, 3)), random.integers(-1000, 1000, (batch, 3))
        first = np.where(ids[..., None] == 0, 0, rows[ids])
        flat, sequence, pooled = group(ids, more)
        np.testing.assert_array_equal(flat[:, 2:], first.reshape(batch, 18))
        np.testing.assert_array_equal(flat[:, :2], np.tile([0, 1], (batch, 1)))
        second = other[more % 40]
        expected = np.concatenate([first, second], 2)
        expected[..., :3] += second
        np.testing.assert_array_equal(sequence, expected)
        assert_close(pooled, first.sum(1))
    # One value a row and two fit as well, four do not; a longer sequence is no matter.
    assert group(np.ones((2, 2)), np.ones((2, 2)))[0].shape == (2, 20)
    assert group(np.ones((2, 2)), np.ones((2, 2)))[1].shape == (2, 2, 9)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"column 0: .* from 2, expected none beyond 20"):
        group(np.ones((2, 4)), np.ones((2, 4)))


def test_a_row_instead_of_none_for_one_value(tmp_path: Path) -> None:
    rows = rows_of(9, 4)
    key = Key(0, ignore=7)
    columns = (Lookup(0, 0, 0, 0, "mean", empty=3), Lookup(0, 0, 0, 4, "mean"), Lookup(0, 0, 0, 8))
    group = Group(EmbeddingPlan((GroupOutput(12),), (key,), columns), [np.int32], [table_of(tmp_path, rows)])
    zeros = np.zeros(4)
    expected = [[rows[1]] * 3, [rows[3], zeros, zeros]]
    np.testing.assert_array_equal(group([1, 7])[0], np.reshape(expected, (2, 12)))
    np.testing.assert_array_equal(group([[1], [7]])[0], np.reshape(expected, (2, 12)))


def test_hashed_tables_find_their_keys(tmp_path: Path) -> None:
    numbers = [3, -7, 10**15]
    names = [b"a", b"", b"long" * 10]
    rows, default = rows_of(3, 5), rows_of(2, 5, seed=3)
    tables = [
        table_of(tmp_path, rows, numbers),
        table_of(tmp_path, rows + 1, names, default_rows=ArrayTensor(default), absent_key="default"),
        table_of(tmp_path, rows + 2, numbers, absent_key="error"),
    ]
    columns = (Lookup(0, 0, 0, 0), Lookup(1, 1, 0, 5), Lookup(2, 2, 0, 10, "sum", empty=-7))
    plan = EmbeddingPlan((GroupOutput(15),), (Key(0), Key(1), Key(2, ignore=0, steps=(Add(-7),))), columns)
    group = Group(plan, [np.int64, object, np.int32], tables)
    found = group([10**15, 5], [b"long" * 10, b"b"], [10, 0])[0]
    absent = int(tf.strings.to_hash_bucket_fast(b"b", 2))
    expected = [[rows[2], rows[2] + 1, rows[0] + 2], [0 * rows[0], default[absent], rows[1] + 2]]
    np.testing.assert_array_equal(found, np.reshape(expected, (2, 15)))
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"feature 2: key 5 at position 1, .*{tables[2].name}"):
        group([3, 3], [b"a", b"a"], [10, 12])


@pytest.mark.parametrize("threads", [1, 4])
def test_large_batches_are_computed_in_blocks(tmp_path: Path, threads: int) -> None:
    rows = rows_of(997, 24)
    keys = (Key(0), Key(1, "ragged", row_splits=2))
    columns = (Lookup(0, 0, 0, 0), Lookup(1, 1, 0, 24, "mean"), Copy(3, 0, 48, 1))
    tables = [table_of(tmp_path, rows), table_of(tmp_path, rows[::-1].copy(), absent_key="error")]
    types = [np.int32, np.int64, np.int64, np.float64]
    group = Group(EmbeddingPlan((GroupOutput(49),), keys, columns), types, tables, threads=threads)
    for batch in (20011, 3, 9000):
        ids = np.random.default_rng(batch).integers(0, 997, batch)
        bag = bags(batch, 40, batch, rows=997, least=1)
        found = group(ids, bag.values, bag.row_splits, ids / 7)[0]
        pooled = tf.nn.embedding_lookup_sparse(rows[::-1].copy(), bag.to_sparse(), None, "mean")
        assert_close(found, np.concatenate([rows[ids], pooled, ids[:, None] / 7], 1))
    # The first of many faults, whichever thread comes across another.
    values = np.full(20011, -5)
    values[0] = -3
    with pytest.raises(tf.errors.InvalidArgumentError, match="key -3 at position 0"):
        group(np.zeros(20011), values, np.arange(20012), np.zeros(20011))


def test_number_features_are_cast(tmp_path: Path) -> None:
    types = ["float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
    columns = tuple(Copy(i, 0, 2 * i, 2) for i in range(len(types)))
    columns += (Copy(0, 0, 1, 2, accumulate=True),)
    group = Group(EmbeddingPlan((GroupOutput(2 * len(types)),), (), columns), types)
    values = np.array([[-3, 120], [0, 1], [77, 5]])
    features = [values.astype(dtype_) for dtype_ in types]
    expected = np.concatenate([np.asarray(tf.cast(feature, tf.float32)) for feature in features], 1)
    expected[:, 1:3] += values
    np.testing.assert_array_equal(group(*features)[0], expected)


def test_shapes_are_inferred(tmp_path: Path) -> None:
    table = table_of(tmp_path, rows_of(9, 4))
    outputs = (GroupOutput(4), GroupOutput(4, sequence=0))
    plan = EmbeddingPlan(outputs, (Key(0),), (Lookup(0, 0, 0, 0, "sum"), Lookup(0, 0, 1, 0)))
    for given, expected in ((None, [None, None]), ([None, 7], [None, 7]), ([3, 7], [3, 7])):
        made = Group(plan, [np.int64], [table], outputs=2, shapes=[given])
        assert made.outputs[0].shape.as_list() == [expected[0], 4]
        assert made.outputs[1].shape.as_list() == [*expected, 4]
        made.close()
    with pytest.raises(ValueError, match="must be at least rank 2"):
        Group(plan, [np.int64], [table], outputs=2, shapes=[[3]])
