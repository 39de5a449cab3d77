# SPDX-License-Identifier: Apache-2.0
"""Lookups of sparse ids become shorter, with bit-identical results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.passes.cut.collapse_partitioned_lookups import CollapsePartitionedLookups
from graph_tools.passes.cut.collapse_safe_embedding_lookup import CollapseSafeEmbeddingLookup
from helpers.models.idiom_models import assert_same, export_function, export_graph, ops, passed, table

COMBINERS = ["mean", "sum", "sqrtn"]


def sparse(rows: int, entries: list[tuple[int, int, int]], width: int = 4) -> dict[str, np.ndarray]:
    """A sparse tensor of (row, column, id) as a client feeds it."""
    return {
        "indices": np.array([entry[:2] for entry in entries], np.int64).reshape(-1, 2),
        "ids": np.array([entry[2] for entry in entries], np.int64),
        "shape": np.array([rows, width], np.int64),
    }


REQUESTS = [
    sparse(3, [(0, 0, 1), (0, 1, 2), (2, 0, 9)]),
    sparse(5, [(1, 0, 3), (1, 1, 3), (1, 2, 0)]),
    sparse(4, [(0, 0, -1), (1, 0, 5), (1, 1, -7), (1, 2, 4), (3, 0, -2)]),
    sparse(2, []),
    sparse(0, []),
    sparse(1, [(0, 0, 7)]),
    sparse(3, [(2, 0, 4), (0, 0, 1), (2, 1, 5), (0, 1, 2)]),
    sparse(1, [(0, column, column % 10) for column in range(37)], 37),
]

REFUSED = [sparse(2, [(0, 0, 10)]), sparse(2, [(2, 0, 1)]), sparse(2, [(-1, 0, 1)])]


def export_fed(path: Path, combiner: str, default_id: int | None = None) -> Path:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        import tensorflow as tf

        weights = v1.get_variable("table", initializer=table(10, 6))
        fed = {"indices": v1.placeholder(tf.int64, [None, 2]), "ids": v1.placeholder(tf.int64, [None])}
        fed["shape"] = v1.placeholder(tf.int64, [2])
        ids = tf.SparseTensor(fed["indices"], fed["ids"], fed["shape"])
        rows = v1.nn.safe_embedding_lookup_sparse(weights, ids, combiner=combiner, default_id=default_id)
        return fed, {"rows": tf.identity(rows)}

    return export_graph(path, build)


def export_padded(path: Path, function: Any = None, dim: int = 6) -> Path:
    """Words [batch, n], padded with '', hashed into 50 rows."""
    import tensorflow as tf

    weights = tf.Variable(table(50, dim))

    def serve(words: tf.Tensor) -> dict[str, tf.Tensor]:
        made = tf.sparse.from_dense(words)
        ids = tf.SparseTensor(made.indices, tf.strings.to_hash_bucket_fast(made.values, 50), made.dense_shape)
        if function is not None:
            ids = function(ids)
        return {"rows": tf.nn.safe_embedding_lookup_sparse(weights, ids)}

    return export_function(path, serve, [tf.TensorSpec([None, None], tf.string, name="words")], weights=weights)


WORDS = [
    {"words": np.array(words, object).reshape(shape)}
    for words, shape in (
        ([b"a", b"", b"b", b"", b"", b""], (2, 3)),
        ([b"", b"", b"", b""], (2, 2)),
        (["żółw".encode(), b"x", b"x", b"\xff\x00"], (1, 4)),
        ([], (0, 3)),
        ([], (3, 0)),
        ([b"a", b"", b"c"], (3, 1)),
    )
]


@pytest.mark.parametrize("combiner", COMBINERS)
def test_fed_sparse_tensors_give_bit_identical_results(combiner: str, tmp_path: Path) -> None:
    source = export_fed(tmp_path / "in", combiner)
    model, (result,) = passed(source, CollapseSafeEmbeddingLookup())
    assert result.applied == 1
    assert not result.refused
    assert len(model.graph) < 30
    assert ops(model)["SparseFillEmptyRows"] == 1
    assert "Unique" not in ops(model)
    assert "Tile" not in ops(model)
    assert_same(source, model, tmp_path / "out", REQUESTS, REFUSED)


def test_default_id_fills_empty_rows(tmp_path: Path) -> None:
    source = export_fed(tmp_path / "in", "mean", default_id=3)
    model, (result,) = passed(source, CollapseSafeEmbeddingLookup())
    assert result.applied == 1
    assert not {"Select", "SelectV2", "Unique"} & set(ops(model))
    assert_same(source, model, tmp_path / "out", REQUESTS, REFUSED)


def test_ordered_entries_need_no_filled_rows(tmp_path: Path) -> None:
    source = export_padded(tmp_path / "in")
    model, (result,) = passed(source, CollapseSafeEmbeddingLookup())
    assert result.applied == 1
    assert ops(model)["SparseSegmentMeanWithNumSegments"] == 1
    # Hashes are never negative: nothing drops ids any more, and the one Where finds the words.
    assert ops(model)["Where"] == 1
    assert not {"SparseFillEmptyRows", "Unique", "ResourceGather", "SparseReshape"} & set(ops(model))
    assert_same(source, model, tmp_path / "out", WORDS)


def test_ids_that_may_be_negative_are_still_dropped(tmp_path: Path) -> None:
    def shifted(ids: Any) -> Any:
        import tensorflow as tf

        return tf.SparseTensor(ids.indices, ids.values - 25, ids.dense_shape)

    source = export_padded(tmp_path / "in", shifted)
    model, (result,) = passed(source, CollapseSafeEmbeddingLookup())
    assert result.applied == 1
    assert ops(model)["GreaterEqual"] == 1
    assert ops(model)["Where"] == 2
    assert_same(source, model, tmp_path / "out", WORDS)


def test_more_axes_keep_their_reshape(tmp_path: Path) -> None:
    import tensorflow as tf

    weights = tf.Variable(table(50, 4))

    def serve(words: tf.Tensor) -> dict[str, tf.Tensor]:
        made = tf.sparse.from_dense(words)
        ids = tf.SparseTensor(made.indices, tf.strings.to_hash_bucket_fast(made.values, 50), made.dense_shape)
        return {"rows": tf.nn.safe_embedding_lookup_sparse(weights, ids, combiner="sum")}

    source = export_function(
        tmp_path / "in", serve, [tf.TensorSpec([None, None, 2], tf.string, name="words")], weights=weights
    )
    model, (result,) = passed(source, CollapseSafeEmbeddingLookup())
    assert result.applied == 1
    assert ops(model)["SparseReshape"] == 1
    words = np.array([b"a", b"b", b"", b"c", b"", b"", b"", b""], object).reshape(2, 2, 2)
    assert_same(source, model, tmp_path / "out", [{"words": words}, {"words": words[:1]}, {"words": words[:0]}])


def test_second_run_changes_nothing(tmp_path: Path) -> None:
    source = export_fed(tmp_path / "in", "mean")
    _, (first, second) = passed(source, CollapseSafeEmbeddingLookup(), CollapseSafeEmbeddingLookup())
    assert (first.applied, second.applied, second.refused) == (1, 0, [])


def test_ids_of_another_tensor_are_refused(tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        import tensorflow as tf

        weights = v1.get_variable("table", initializer=table(10, 6))
        fed = {"indices": v1.placeholder(tf.int64, [None, 2]), "ids": v1.placeholder(tf.int64, [None])}
        fed["shape"] = v1.placeholder(tf.int64, [2])
        filled, _ = tf.sparse.fill_empty_rows(tf.SparseTensor(fed["indices"], fed["ids"], fed["shape"]), 0)
        changed = tf.SparseTensor(filled.indices, tf.math.mod(filled.values, 2), filled.dense_shape)
        return fed, {"rows": v1.nn.embedding_lookup_sparse(weights, changed, None, combiner="mean")}

    source = export_graph(tmp_path / "in", build)
    model, (result,) = passed(source, CollapseSafeEmbeddingLookup())
    assert result.applied == 0
    assert "expected one sparse tensor" in result.refused[0][1]
    assert_same(source, model, tmp_path / "out", REQUESTS[:2])


def test_buckets_in_a_linear_model_give_bit_identical_results(tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        import tensorflow as tf

        fed = v1.placeholder(tf.float32, [None, 2])
        number = tf.feature_column.numeric_column("number", shape=(2,))
        column = tf.feature_column.bucketized_column(number, [0.0, 1.0])
        return {"number": fed}, {"rows": tf.identity(v1.feature_column.linear_model({"number": fed}, [column]))}

    source = export_graph(tmp_path / "in", build)
    model, (result,) = passed(source, CollapseSafeEmbeddingLookup())
    assert (result.applied, result.refused) == (1, [])
    numbers = np.array([[-1, 0.5], [2, 1], [0, 0]], np.float32)
    assert_same(source, model, tmp_path / "out", [{"number": numbers}, {"number": numbers[:1]}])


@pytest.mark.parametrize("strategy", ["div", "mod"])
@pytest.mark.parametrize("combiner", COMBINERS)
def test_lookups_behind_partitioned_tables_are_as_short(combiner: str, strategy: str, tmp_path: Path) -> None:
    def build(parts: int) -> Any:
        def made(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
            partitioner = v1.fixed_size_partitioner(parts) if parts else None
            weights = v1.get_variable(
                "table", [10, 6], initializer=v1.random_normal_initializer(), partitioner=partitioner
            )
            ids = v1.sparse_placeholder(v1.int64, [None, None])
            rows = v1.nn.safe_embedding_lookup_sparse(
                weights, ids, combiner=combiner, partition_strategy=strategy if parts else "div"
            )
            return {"indices": ids.indices, "ids": ids.values, "shape": ids.dense_shape}, {"rows": v1.identity(rows)}

        return made

    passes = (CollapsePartitionedLookups(), CollapseSafeEmbeddingLookup())
    whole, _ = passed(export_graph(tmp_path / "whole", build(0)), *passes)
    source = export_graph(tmp_path / "in", build(3))
    model, results = passed(source, *passes)
    assert [result.applied for result in results] == [1, 1]
    assert ops(model) == ops(whole)
    assert_same(source, model, tmp_path / "out", REQUESTS, REFUSED)
