# SPDX-License-Identifier: Apache-2.0
"""What does not fit a `RecEmbeddingGroup` is refused by name, and nothing is read beyond a tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.plans import EmbeddingPlan
from graph_tools.plans.embedding_parts import Copy, FastHash, GroupOutput, Key, Linear, Lookup
from helpers.models.embedding_tables import rows_of
from helpers.oracles.embedding_groups import Group, table_of


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table_of(tmp_path_factory.mktemp("table"), rows_of(10, 4))


def refused(group: Group, text: str, *features: Any) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        group(*features)


def test_features_with_different_numbers_of_rows_are_refused(table: Path) -> None:
    columns = (Lookup(0, 0, 0, 0), Copy(1, 0, 4, 1), Linear(2, 0, 5, ((1.0,), (2.0,))))
    group = Group(EmbeddingPlan((GroupOutput(6),), (Key(0),), columns), [np.int64, np.float32, np.float32], [table])
    two = np.zeros((2, 2))
    refused(group, "feature 1: 3 rows, expected 2 as feature 0 has", [1, 2], [1, 2, 3], two)
    refused(group, "feature 2: 1 rows, expected 2 as feature 0 has", [1, 2], [1, 2], two[:1])
    refused(group, "feature 0: a scalar", 1, [1], two[:1])
    refused(group, "feature 1: 2 elements a row, expected 1", [1, 2], two, two)
    refused(group, "feature 2: 1 elements a row, expected 2", [1, 2], [1, 2], [1, 2])
    assert group([1, 2], [1, 2], two)[0].shape == (2, 6)


def test_malformed_sparse_features_are_refused(table: Path) -> None:
    key = Key(0, "sparse", indices=1, shape=2)
    plan = EmbeddingPlan((GroupOutput(4),), (key,), (Lookup(0, 0, 0, 0, "sum", weights=3),))
    group = Group(plan, [np.int64, np.int64, np.int64, np.float32], [table])
    ids, indices, shape, weights = [1, 2], [[0, 0], [1, 0]], [2, 1], [1, 1]
    assert group(ids, indices, shape, weights)[0].shape == (2, 4)
    refused(group, "feature 1: row 2 at position 1, expected 0 to 1", ids, [[0, 0], [2, 0]], shape, weights)
    refused(group, "feature 1: row -1 at position 0", ids, [[-1, 0], [1, 0]], shape, weights)
    refused(group, "feature 1: row 0 at position 1 after row 1", ids, [[1, 0], [0, 0]], shape, weights)
    refused(group, "feature 1: 2 elements, expected", ids, [[0, 0]], shape, weights)
    refused(group, "feature 1: 4 elements, expected", ids, [0, 0, 1, 0], shape, weights)
    refused(group, "feature 2: 3 elements, expected the shape", ids, indices, [2, 1, 1], weights)
    refused(group, "feature 2: -1 rows, expected 0 to", ids, indices, [-1, 1], weights)
    refused(group, "feature 2: 4611686018427387904 rows", ids, indices, [2**62, 1], weights)
    refused(
        group, r"feature 2: 1048577 rows, expected 0 to 1048576 \(max_rows\)", ids, indices, [2**20 + 1, 1], weights
    )
    refused(group, "feature 3: 1 weights, expected 2 as feature 0 has", ids, indices, shape, [1])
    refused(group, "feature 1: row 0 at position 0, expected 0 to -1", ids, indices, [0, 1], weights)
    assert group([], np.zeros((0, 2)), [3, 0], [])[0].tolist() == [[0, 0, 0, 0]] * 3


@pytest.mark.parametrize("type_", [np.int32, np.int64])
def test_malformed_ragged_features_are_refused(table: Path, type_: Any) -> None:
    key = Key(0, "ragged", row_splits=1)
    group = Group(EmbeddingPlan((GroupOutput(4),), (key,), (Lookup(0, 0, 0, 0, "sum"),)), [np.int64, type_], [table])
    ids = [1, 2, 3]
    assert group(ids, [0, 0, 3])[0].shape == (2, 4)
    refused(group, "feature 1: no elements", ids, [])
    refused(group, "feature 1: row split 2 at position 2", ids, [0, 3, 2, 3])
    refused(group, "feature 1: row split 1 at position 0", ids, [1, 3])
    refused(group, "feature 1: row split 4 at position 1", ids, [0, 4])
    refused(group, "feature 1: row split -1 at position 1", ids, [0, -1, 3])
    refused(group, "feature 1: row splits end at 2, expected 3", ids, [0, 2])


@pytest.mark.parametrize("type_", [np.int32, np.int64])
def test_malformed_segmented_features_are_refused(table: Path, type_: Any) -> None:
    key = Key(0, "segments", segment_ids=1, rows=2)
    group = Group(
        EmbeddingPlan((GroupOutput(4),), (key,), (Lookup(0, 0, 0, 0, "sum"),)), [np.int64, type_, type_], [table]
    )
    ids = [1, 2, 3]
    assert group(ids, [0, 0, 3], 5)[0].shape == (5, 4)
    refused(group, "feature 1: row 5 at position 2, expected 0 to 4", ids, [0, 0, 5], 5)
    refused(group, "feature 1: row 0 at position 1 after row 1", ids, [1, 0, 3], 5)
    refused(group, "feature 1: 2 elements, expected", ids, [0, 3], 5)
    refused(group, "feature 2: 0 elements, expected the number of rows", ids, [0, 0, 3], [])
    refused(group, "feature 2: -2 rows", ids, [0, 0, 3], -2)


def test_sequences_of_other_lengths_are_refused(table: Path) -> None:
    columns = (Lookup(0, 0, 0, 0), Lookup(1, 0, 0, 4))
    group = Group(
        EmbeddingPlan((GroupOutput(8, sequence=0),), (Key(0), Key(1)), columns), [np.int64, np.int64], [table]
    )
    refused(
        group, r"feature 1: 2 values a row, expected \[batch, 3\] as feature 0 has", np.ones((2, 3)), np.ones((2, 2))
    )
    refused(group, r"feature 1: 3 values a row", np.ones((2, 3)), np.ones((2, 1, 3)))
    refused(group, r"feature 0: one dimension, expected \[batch, T\]", [1, 2], [1, 2])
    assert group(np.ones((0, 3)), np.ones((0, 3)))[0].shape == (0, 3, 8)
    assert group(np.ones((3, 0)), np.ones((3, 0)))[0].shape == (3, 0, 8)


def test_columns_that_do_not_fit_their_tables_are_refused(table: Path, tmp_path: Path) -> None:
    named = table_of(tmp_path, rows_of(2, 4), [b"a", b"b"], absent_key="error")

    def run(width: int, key: Key, *columns: Lookup, type_: Any = np.int64, file: Path = table) -> None:
        Group(EmbeddingPlan((GroupOutput(width),), (key,), columns), [type_], [file])([b""] if type_ is object else [0])

    with pytest.raises(
        tf.errors.InvalidArgumentError, match="column 0: 4 columns or more from 1, expected none beyond 4"
    ):
        run(4, Key(0), Lookup(0, 0, 0, 1))
    with pytest.raises(tf.errors.InvalidArgumentError, match="column 1: writes over another column"):
        run(8, Key(0), Lookup(0, 0, 0, 1), Lookup(0, 0, 0, 4))
    with pytest.raises(tf.errors.InvalidArgumentError, match="column 1: writes over another column"):
        run(8, Key(0), Lookup(0, 0, 0, 4, accumulate=True), Lookup(0, 0, 0, 4))
    run(8, Key(0), Lookup(0, 0, 0, 1), Lookup(0, 0, 0, 4, accumulate=True))
    with pytest.raises(tf.errors.InvalidArgumentError, match="column 0: key 0 gives numbers, expected strings"):
        run(4, Key(0), Lookup(0, 0, 0, 0), file=named)
    with pytest.raises(tf.errors.InvalidArgumentError, match="column 0: key 0 gives strings, expected numbers"):
        run(4, Key(0), Lookup(0, 0, 0, 0), type_=object)
    with pytest.raises(tf.errors.InvalidArgumentError, match="column 0: 'empty' is not a key of table"):
        run(4, Key(0), Lookup(0, 0, 0, 0, "sum", empty="a"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="column 0: the key 'empty' is not in table"):
        run(4, Key(0), Lookup(0, 0, 0, 0, "sum", empty="c"), type_=object, file=named)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"feature 0: key 'z\\x01' at position 0, .*\.emb"):
        Group(EmbeddingPlan((GroupOutput(4),), (Key(0),), (Lookup(0, 0, 0, 0),)), [object], [named])([b"z\1"])


def test_features_of_the_wrong_type_are_refused(table: Path) -> None:
    def run(types: list[Any], key: Key, *columns: Any) -> None:
        plan = EmbeddingPlan((GroupOutput(4),), (key,), columns)
        Group(plan, types, [table])(*[[b""] if dtype_ is object else [0] for dtype_ in types])

    ragged, sparse = Key(0, "ragged", row_splits=1), Key(0, "sparse", indices=1, shape=2)
    weighted = Lookup(0, 0, 0, 0, "sum", weights=1)
    cases = [
        ([np.float32], Key(0), Lookup(0, 0, 0, 0), "key 0: feature 0 is float and not bucketized"),
        ([np.int64], Key(0, steps=(FastHash(3),)), Lookup(0, 0, 0, 0), "key 0: a hash of a number"),
        ([object], Key(0, ignore=5), Lookup(0, 0, 0, 0), "key 0: feature 0 is string and 'ignore' is not"),
        ([np.int64] * 2, ragged, weighted, "feature 1: int64, expected float"),
        ([np.int64, np.int32, np.int64], sparse, weighted, "feature 1: int32, expected int64"),
        ([np.int64, object], Key(0), Copy(1, 0, 0, 1), "feature 1: string, expected a number"),
        ([np.int64, np.float64], Key(0), Linear(1, 0, 0, ((1.0,),)), "feature 1: double, expected float"),
    ]
    for types, key, column, text in cases:
        with pytest.raises(tf.errors.InvalidArgumentError, match=text):
            run(types, key, column)


def test_plans_are_checked_when_the_graph_is_made(table: Path) -> None:
    for plan, text in (("{", "embedding plan: not JSON"), ('{"version": 2}', "version: 2 found, expected 1")):
        with pytest.raises(ValueError, match=text):
            Group(plan, [np.int64], [table])


def test_a_table_that_was_not_initialized_is_refused(table: Path) -> None:
    plan = EmbeddingPlan((GroupOutput(4),), (Key(0),), (Lookup(0, 0, 0, 0),))
    group = Group(plan, [np.int64], [table], initialize=False)
    with pytest.raises(tf.errors.FailedPreconditionError, match="table 'table0': not initialized"):
        group([1])
