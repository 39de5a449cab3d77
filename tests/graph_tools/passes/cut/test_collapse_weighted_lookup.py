# SPDX-License-Identifier: Apache-2.0
"""Weighted lookups become shorter, with bit-identical results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.passes.cut.collapse_weighted_lookup import CollapseWeightedLookup
from helpers.models.idiom_models import assert_same, export_graph, ops, passed, table


def entries(rows: int, *found: tuple[int, int, int, float]) -> dict[str, np.ndarray]:
    """A sparse tensor of (row, column, id, weight) as a client feeds it."""
    return {
        "indices": np.array([entry[:2] for entry in found], np.int64).reshape(-1, 2),
        "ids": np.array([entry[2] for entry in found], np.int64),
        "weights": np.array([entry[3] for entry in found], np.float32),
        "shape": np.array([rows, 5], np.int64),
    }


REQUESTS = [
    entries(3, (0, 0, 1, 2.0), (0, 1, 2, 0.5), (2, 0, 9, 0.25)),
    entries(4, (0, 0, 1, -2.0), (1, 0, -2, 1.5), (1, 1, 3, 0.0), (2, 0, 4, 1.0), (2, 1, 5, -1.0), (2, 2, 4, 0.1)),
    entries(2),
    entries(0),
    entries(1, (0, 0, 3, 0.7)),
    entries(3, (2, 0, 1, 0.5), (0, 0, 2, 0.25), (2, 1, 2, 3.0)),
]


def export(path: Path, combiner: str, default_id: int | None, hashed: bool = False) -> Path:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        import tensorflow as tf

        weights = v1.get_variable("table", initializer=table(10, 6))
        fed = {"indices": v1.placeholder(tf.int64, [None, 2]), "ids": v1.placeholder(tf.int64, [None])}
        fed |= {"shape": v1.placeholder(tf.int64, [2]), "weights": v1.placeholder(tf.float32, [None])}
        keys = tf.strings.to_hash_bucket_fast(tf.as_string(fed["ids"]), 10) if hashed else fed["ids"]
        ids = tf.SparseTensor(fed["indices"], keys, fed["shape"])
        of_ids = tf.SparseTensor(fed["indices"], fed["weights"], fed["shape"])
        rows = v1.nn.safe_embedding_lookup_sparse(weights, ids, of_ids, combiner, default_id)
        return fed, {"rows": tf.identity(rows)}

    return export_graph(path, build)


@pytest.mark.parametrize("default_id", [None, 4])
@pytest.mark.parametrize("combiner", ["mean", "sum", "sqrtn"])
def test_fed_weights_give_bit_identical_results(combiner: str, default_id: int | None, tmp_path: Path) -> None:
    source = export(tmp_path / "in", combiner, default_id)
    model, (first, second) = passed(source, CollapseWeightedLookup(), CollapseWeightedLookup())
    assert (first.applied, first.refused) == (1, [])
    assert (second.applied, second.refused) == (0, [])
    assert ops(model)["Where"] == 1
    assert not {"Unique", "SparseReshape", "Tile", "Select"} & set(ops(model))
    assert_same(source, model, tmp_path / "out", REQUESTS, refused=[entries(1, (0, 0, 10, 1.0))])


def test_hashed_ids_are_not_checked(tmp_path: Path) -> None:
    source = export(tmp_path / "in", "sum", None, hashed=True)
    model, (result,) = passed(source, CollapseWeightedLookup())
    assert result.applied == 1
    assert not {"Where", "GreaterEqual", "LogicalAnd"} & set(ops(model))
    assert_same(source, model, tmp_path / "out", REQUESTS)


def test_entries_dropped_by_different_masks_are_refused(tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        import tensorflow as tf

        weights = v1.get_variable("table", initializer=table(10, 6))
        fed = {"indices": v1.placeholder(tf.int64, [None, 2]), "ids": v1.placeholder(tf.int64, [None])}
        fed |= {"shape": v1.placeholder(tf.int64, [2]), "weights": v1.placeholder(tf.float32, [None])}
        ids = tf.SparseTensor(fed["indices"], fed["ids"], fed["shape"])
        of_ids = tf.SparseTensor(fed["indices"], fed["weights"], fed["shape"])
        ids = tf.sparse.fill_empty_rows(tf.sparse.retain(ids, ids.values < 5), 0)[0]
        of_ids = tf.sparse.fill_empty_rows(tf.sparse.retain(of_ids, of_ids.values < 5), 1.0)[0]
        return fed, {"rows": tf.identity(v1.nn.embedding_lookup_sparse(weights, ids, of_ids, combiner="sum"))}

    source = export_graph(tmp_path / "in", build)
    model, (result,) = passed(source, CollapseWeightedLookup())
    assert result.applied == 0
    assert "by different masks" in result.refused[0][1]
    assert_same(source, model, tmp_path / "out", REQUESTS[-2:])
