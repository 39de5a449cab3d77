# SPDX-License-Identifier: Apache-2.0
"""Products of rows of several tables: `RecEmbeddingGroup` computes what TensorFlow's own ops compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.plans import EmbeddingPlan
from graph_tools.plans.embedding_parts import Divide, Factor, GroupOutput, Key, Lookup, Mod
from graph_tools.store import TableReader
from graph_tools.tensors import Array
from helpers.models.embedding_tables import rows_of
from helpers.oracles.embedding_groups import Group, table_of
from helpers.oracles.op_graphs import assert_close

QUOTIENTS, REMAINDERS, DIM = 40, 25, 17
SPAN = QUOTIENTS * REMAINDERS
STEPS = ((Divide(REMAINDERS),), (Mod(REMAINDERS),))


def tables_of(path: Path, row_type: str, dim: int = DIM) -> tuple[list[Path], Array]:
    """Return the tables of quotients and of remainders, and the products [SPAN, dim] of their rows."""
    sizes = (QUOTIENTS, REMAINDERS)
    tables = [table_of(path, rows_of(count, dim, seed=count), row_type=row_type) for count in sizes]
    quotients, remainders = (
        TableReader(table).rows(np.arange(count)) for table, count in zip(tables, sizes, strict=True)
    )
    return tables, (quotients[:, None] * remainders).reshape(SPAN, dim)


def keys_of(**fields: Any) -> tuple[Key, ...]:
    return tuple(Key(0, steps=steps, **fields) for steps in STEPS)


@pytest.mark.parametrize("row_type", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("layout", ["dense", "sparse", "ragged", "segments"])
def test_pooled_products_equal_the_formula(tmp_path: Path, layout: str, row_type: str) -> None:
    tables, products = tables_of(tmp_path, row_type)
    fields: dict[str, Any] = {
        "dense": {},
        "sparse": {"layout": "sparse", "indices": 2, "shape": 3},
        "ragged": {"layout": "ragged", "row_splits": 2},
        "segments": {"layout": "segments", "segment_ids": 2, "rows": 3},
    }[layout]
    types = [np.int64, np.float32, *{"dense": [], "ragged": [np.int64]}.get(layout, [np.int64, np.int64])]
    combiners = ("sum", "mean", "sqrtn")
    factors = (Factor(1, 1),)
    plain = [Lookup(0, 0, 0, i * DIM, name, factors=factors) for i, name in enumerate(combiners)]
    weighted = [Lookup(0, 0, 1, i * DIM, name, weights=1, factors=factors) for i, name in enumerate(combiners)]
    added = [Lookup(0, 0, 2, 0, "sum", accumulate=True, factors=factors)] * 2
    outputs = (GroupOutput(3 * DIM), GroupOutput(3 * DIM), GroupOutput(DIM, (0.5,) * DIM))
    plan = EmbeddingPlan(outputs, keys_of(**fields), (*plain, *weighted, *added))
    plan.check(len(types), [DIM, DIM])
    group = Group(plan, types, tables, outputs=3)
    # More values than are multiplied at a time, and rows without a value.
    for lengths in ([3], [1, 0, 2, 700, 1]):
        if layout == "dense":
            lengths = [max(lengths)] * len(lengths)
        random = np.random.default_rng(len(lengths))
        ids = tf.RaggedTensor.from_row_lengths(random.integers(0, SPAN, sum(lengths)), np.array(lengths))
        weights = ids.with_values(random.uniform(0.1, 1, sum(lengths)).astype(np.float32))
        sparse = ids.to_sparse()
        features: list[Any] = {
            "dense": [ids.to_tensor(), weights.to_tensor()],
            "sparse": [ids.values, weights.values, sparse.indices, sparse.dense_shape],
            "ragged": [ids.values, weights.values, ids.row_splits],
            "segments": [ids.values, weights.values, ids.value_rowids(), len(lengths)],
        }[layout]
        found = group(*features)
        for output, given in zip(found, (None, weights.to_sparse()), strict=False):
            expected = [pooled(products, sparse, given, name, len(lengths)) for name in combiners]
            # Of 700 products, which are as large as 10.
            np.testing.assert_allclose(output, np.concatenate(expected, 1), rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(
            found[2], 0.5 + 2 * pooled(products, sparse, None, "sum", len(lengths)), rtol=1e-5, atol=2e-4
        )
    group.close()


def pooled(rows: Array, ids: Any, weights: Any, combiner: str, batch: int) -> Array:
    """Return what TensorFlow pools, with zeros for the last rows without a value."""
    made = np.zeros((batch, rows.shape[1]), np.float32)
    found = tf.nn.embedding_lookup_sparse(rows, ids, weights, combiner).numpy()
    made[: len(found)] = found
    return made


@pytest.mark.parametrize("dim", [1, 17, 64, 5000])
@pytest.mark.parametrize("row_type", ["fp32", "bf16", "fp16"])
def test_products_side_by_side_and_in_sequences_are_exact(tmp_path: Path, dim: int, row_type: str) -> None:
    tables, products = tables_of(tmp_path, row_type, dim)
    factors = (Factor(1, 1),)
    columns = (
        Lookup(0, 0, 0, 1, factors=factors),
        Lookup(0, 0, 1, 0, factors=factors),
        Lookup(1, 1, 2, 0, accumulate=True, factors=(Factor(0, 0), Factor(0, 0))),
    )
    outputs = (GroupOutput(1 + 3 * dim), GroupOutput(dim, sequence=0), GroupOutput(dim, sequence=0))
    group = Group(EmbeddingPlan(outputs, keys_of(), columns), [np.int64], tables, outputs=3)
    for batch in (0, 1, 30):
        ids = np.random.default_rng(batch).integers(0, SPAN, (batch, 3))
        side, sequence, thrice = group(ids)
        np.testing.assert_array_equal(side[:, 1:], products[ids].reshape(batch, 3 * dim))
        np.testing.assert_array_equal(sequence, products[ids])
        quotients = TableReader(tables[0]).rows(np.arange(QUOTIENTS))[ids // REMAINDERS]
        assert_close(thrice, products[ids] * quotients)
    group.close()


def test_missing_values_are_left_out_and_absent_ones_are_zeros(tmp_path: Path) -> None:
    tables, _ = tables_of(tmp_path, "fp32")
    keys = (Key(0, ignore=-1), Key(0, ignore=-1, steps=(Mod(REMAINDERS),)))
    columns = (Lookup(0, 0, 0, 0, "mean", factors=(Factor(1, 1),)), Lookup(0, 0, 1, 0, factors=(Factor(1, 1),)))
    zeros = table_of(tmp_path, TableReader(tables[0]).rows(np.arange(QUOTIENTS)), absent_key="zeros")
    plan = EmbeddingPlan((GroupOutput(DIM), GroupOutput(DIM, sequence=0)), keys, columns)
    group = Group(plan, [np.int64], [zeros, tables[1]], outputs=2)
    quotients, remainders = (TableReader(table).rows(np.arange(25)) for table in (zeros, tables[1]))
    mean, rows = group(np.array([[3, -1, 100], [-1, -1, -1]]))
    assert_close(mean, np.stack([quotients[3] * remainders[3] / 2, np.zeros(DIM)]))
    np.testing.assert_array_equal(rows[0], [quotients[3] * remainders[3], np.zeros(DIM), np.zeros(DIM)])
    np.testing.assert_array_equal(rows[1], np.zeros((3, DIM)))
    group.close()
    infinite = table_of(tmp_path, np.full((QUOTIENTS, DIM), np.inf, np.float32))
    single = (Lookup(1, 1, 0, 0, factors=(Factor(0, 0),)),)
    group = Group(EmbeddingPlan((GroupOutput(DIM, sequence=0),), keys, single), [np.int64], [zeros, infinite])
    assert np.isnan(group(np.array([[100]]))[0]).all()
    group.close()


@pytest.mark.parametrize("share", [0, 0.3])
def test_products_of_tiered_rows_equal_those_of_mapped_ones(tmp_path: Path, share: float) -> None:
    tables, _ = tables_of(tmp_path, "bf16")
    columns = (Lookup(0, 0, 0, 0, "sum", factors=(Factor(1, 1),)), Lookup(0, 0, 1, 0, factors=(Factor(1, 1),)))
    plan = EmbeddingPlan((GroupOutput(DIM), GroupOutput(3 * DIM)), keys_of(), columns)
    tiered, mapped = (Group(plan, [np.int64], tables, outputs=2, cache_share=kept) for kept in (share, None))
    ids = np.random.default_rng(1).integers(0, SPAN, (50, 3))
    for found, wanted in zip(tiered(ids), mapped(ids), strict=True):
        np.testing.assert_array_equal(found, wanted)
    tiered.close()
    mapped.close()


def test_rows_of_other_widths_and_other_numbers_of_values_are_refused(tmp_path: Path) -> None:
    tables, _ = tables_of(tmp_path, "fp32")
    other = table_of(tmp_path, rows_of(REMAINDERS, DIM + 1))
    columns = (Lookup(0, 0, 0, 0, factors=(Factor(1, 1),)),)
    plan = EmbeddingPlan((GroupOutput(2 * DIM),), (Key(0), Key(1)), columns)
    group = Group(plan, [np.int64, np.int64], [tables[0], other])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"rows of 18 elements .*expected 17"):
        group([[0, 1]], [[0, 1]])
    group.close()
    group = Group(plan, [np.int64, np.int64], tables)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"feature 1: 1 values, expected 2 as feature 0 has"):
        group([[0, 1]], [[0]])
    group.close()
