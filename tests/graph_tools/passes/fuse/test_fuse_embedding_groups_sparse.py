# SPDX-License-Identifier: Apache-2.0
"""Lookups that combine the rows of several values: sparse tensors, bags of words, weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.plans.embedding_parts import FastHash, Lookup
from helpers.graph_tools.group_checks import Fused, fused, strings
from helpers.models.idiom_models import export_function, table

INDICES = np.array([[0, 0], [0, 1], [2, 0], [2, 4], [2, 5], [4, 0]])
WEIGHTS = np.array([0.5, 2.0, -1.0, 0.0, 3.0, 1.5], np.float32)


def fuse_sparse(
    path: Path, function: Callable[[Any, Any, Any, Any], Any], dtype: str = "int64", weights: bool = False, **more: Any
) -> Fused:
    """Fuse `function(tf, table, sparse tensor, weights)`."""
    import tensorflow as tf

    held = tf.Variable(table(20, 4))

    def serve(indices: Any, values: Any, shape: Any, weights: Any = None) -> dict[str, Any]:
        sparse = tf.SparseTensor(indices, values, shape)
        return {
            "rows": function(tf, held, sparse, None if weights is None else tf.SparseTensor(indices, weights, shape))
        }

    specs = [tf.TensorSpec([None, 2], tf.int64, name="indices"), tf.TensorSpec([None], dtype, name="values"),
             tf.TensorSpec([2], tf.int64, name="shape")]  # fmt: skip
    specs += [tf.TensorSpec([None], tf.float32, name="weights")] if weights else []
    return fused(export_function(path / "in", serve, specs, held=held, **more))


def feeds(values: np.ndarray, weights: bool = False) -> list[dict[str, np.ndarray]]:
    some = {"indices": INDICES, "values": values, "shape": np.array([5, 6])}
    none = {"indices": INDICES[:0], "values": values[:0], "shape": np.array([3, 6])}
    both = [some, none]
    return [one | {"weights": WEIGHTS[: len(one["values"])]} for one in both] if weights else both


VALUES = np.array([3, 19, 0, 0, 7, 7])


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("weighted", [False, True])
def test_safe_embedding_lookup_sparse_becomes_a_group(combiner: str, weighted: bool, tmp_path: Path) -> None:
    made = fuse_sparse(
        tmp_path,
        lambda tf, held, ids, weights: tf.nn.safe_embedding_lookup_sparse(held, ids, weights, combiner=combiner),
        weights=weighted,
    )
    assert made.ops() == set()
    (column,) = made.plan.columns
    assert isinstance(column, Lookup)
    assert (column.combiner, column.weights is not None) == (combiner, weighted)
    assert column.positive_weights == (weighted and combiner != "sum")
    (key,) = made.plan.keys
    assert (key.layout, key.ignore_negative) == ("sparse", True)
    made.check(*feeds(VALUES, weighted), *feeds(np.array([3, -1, -5, -2, -1, 7]), weighted), exact=False)


def test_rows_without_values_get_the_default_row(tmp_path: Path) -> None:
    made = fuse_sparse(
        tmp_path, lambda tf, held, ids, _: tf.nn.safe_embedding_lookup_sparse(held, ids, combiner="sum", default_id=5)
    )
    (column,) = made.plan.columns
    assert isinstance(column, Lookup)
    assert column.empty == 5
    made.check(*feeds(VALUES), exact=False)


def test_group_hashes_words(tmp_path: Path) -> None:
    def function(tf: Any, held: Any, words: Any, _: Any) -> Any:
        ids = tf.SparseTensor(words.indices, tf.strings.to_hash_bucket_fast(words.values, 20), words.dense_shape)
        return tf.nn.safe_embedding_lookup_sparse(held, ids, combiner="mean")

    made = fuse_sparse(tmp_path, function, "string")
    assert made.plan.keys[0].steps == (FastHash(20),)
    made.check(*feeds(strings("a", "b", "", "a", "c", "d")), exact=False)


def test_number_of_rows_that_depends_on_ids_prevents_fusion(tmp_path: Path) -> None:
    made = fuse_sparse(
        tmp_path, lambda tf, held, ids, _: tf.nn.embedding_lookup_sparse(held, ids, None, combiner="mean")
    )
    assert not made.groups
    assert "depends on the ids" in made.result.refused[0][1]


def test_words_of_a_text_are_split_by_the_group(tmp_path: Path) -> None:
    import tensorflow as tf

    held = tf.Variable(table(20, 4))

    def serve(text: Any) -> dict[str, Any]:
        words = tf.strings.split(text, " ").to_sparse()
        ids = tf.SparseTensor(words.indices, tf.strings.to_hash_bucket_fast(words.values, 20), words.dense_shape)
        return {"rows": tf.nn.safe_embedding_lookup_sparse(held, ids, combiner="sqrtn")}

    made = fused(export_function(tmp_path / "in", serve, [tf.TensorSpec([None], "string", name="text")], held=held))
    assert made.ops() == {"StringSplitV2"}
    made.check({"text": strings("a b c", "", "a", "d  d")}, exact=False)


def test_dense_bags_of_words_are_fused(tmp_path: Path) -> None:
    import tensorflow as tf

    tables = [tf.Variable(table(20, 4, i)) for i in range(2)]

    def serve(words: Any) -> dict[str, Any]:
        made = []
        for held, bag, combiner in zip(tables, tf.unstack(words, axis=1), ("mean", "sum"), strict=True):
            sparse = tf.sparse.from_dense(bag)
            ids = tf.SparseTensor(sparse.indices, tf.strings.to_hash_bucket_fast(sparse.values, 20), sparse.dense_shape)
            made.append(tf.nn.safe_embedding_lookup_sparse(held, ids, combiner=combiner))
        return {"rows": tf.concat(made, 1)}

    specs = [tf.TensorSpec([None, 2, None], "string", name="words")]
    made = fused(export_function(tmp_path / "in", serve, specs, held=tables))
    assert made.ops() == {"Unpack"}
    assert [(key.layout, key.ignore) for key in made.plan.keys] == [("dense", "")] * 2
    words = np.array([[["a", "b"], ["", ""]], [["", "c"], ["a", "a"]]], object)
    made.check({"words": words}, {"words": words[:1]}, {"words": words[:, :, :1]}, exact=False)


@pytest.mark.parametrize("row_type", ["fp32", "int8", "bf16"])
def test_equal_rows_of_a_pooled_table_stay_shared(row_type: str, tmp_path: Path) -> None:
    import tensorflow as tf

    held = tf.Variable(np.repeat(table(5, 64), 400, axis=0))
    specs = [tf.TensorSpec([None], "int64", name="ids"), tf.TensorSpec([None], "int32", name="rows")]

    def serve(ids: Any, rows: Any) -> dict[str, Any]:
        count = tf.constant(3, tf.int32)
        combined = tf.raw_ops.SparseSegmentSumWithNumSegments(
            data=held, indices=ids, segment_ids=rows, num_segments=count
        )
        return {"rows": combined}

    made = fused(export_function(tmp_path / "in", serve, specs, held=held), embedding_dtype=row_type)
    assert (made.tables[0].row_type, made.tables[0].rows.shape[0]) == (row_type, 5)
    assert made.ops() == set()
    made.check({"ids": np.array([0, 1999, 4]), "rows": np.array([0, 0, 2], np.int32)}, exact=False)
