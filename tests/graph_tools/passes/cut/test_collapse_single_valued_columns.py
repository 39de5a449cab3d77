# SPDX-License-Identifier: Apache-2.0
"""Feature columns with one value per row become a lookup and a Select, with bit-identical results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.passes.cut.collapse_single_valued_columns import CollapseSingleValuedColumns
from helpers.models.idiom_models import assert_same, export_graph, ops, passed

WORDS = ["a", "b", "żółw", "d"]
SPARSE = {"Where", "GatherNd", "SparseReshape", "SparseFillEmptyRows", "Unique", "Tile", "Select", "SparseSegmentMean"}


def words(*values: Any) -> dict[str, np.ndarray]:
    return {"word": np.array([value.encode() if isinstance(value, str) else value for value in values], object)}


def numbers(*values: int) -> dict[str, np.ndarray]:
    return {"word": np.array(values, np.int64)}


WORD_REQUESTS = [
    words("a", "", "żółw", "none of them", b"\xff\x00", "d", "d"),
    words("", "", ""),
    words(""),
    words("b"),
    words(),
]
NUMBER_REQUESTS = [numbers(0, -1, 3, 9), numbers(-1, -1), numbers(-1), numbers(), numbers(-5, 2)]
OUT_OF_RANGE = [numbers(10), numbers(1, 2**40, -1)]


def columns(requests: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    """Give requests [batch] the shape [batch, 1]."""
    return [{"word": request["word"][:, None]} for request in requests]


def export_column(path: Path, make: Callable[[Any], Any], dtype: str = "string", shape: Any = (None,)) -> Path:
    """Export what `make(tf.feature_column)` gives of the column `word`, as input layer or as linear model."""

    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        import tensorflow as tf

        fed = v1.placeholder(dtype, list(shape), name="word")
        column = make(tf.feature_column)
        features = {"word": v1.expand_dims(fed, 1) if len(shape) == 1 else fed}
        layer = (
            v1.feature_column.linear_model if "Categorical" in type(column).__name__ else v1.feature_column.input_layer
        )
        rows = layer(features, [column])
        return {"word": fed}, {"rows": tf.identity(rows)}

    return export_graph(path, build)


def hashed(column: Any) -> Any:
    return column.categorical_column_with_hash_bucket("word", 7)


def listed(column: Any) -> Any:
    return column.categorical_column_with_vocabulary_list("word", WORDS)


def listed_with_buckets(column: Any) -> Any:
    return column.categorical_column_with_vocabulary_list("word", WORDS, num_oov_buckets=3)


def listed_with_default(column: Any) -> Any:
    return column.categorical_column_with_vocabulary_list("word", WORDS, default_value=2)


def embedded(categorical: Callable[[Any], Any], combiner: str = "mean") -> Callable[[Any], Any]:
    return lambda column: column.embedding_column(categorical(column), 5, combiner=combiner)


@pytest.mark.parametrize(
    "make",
    [
        embedded(hashed),
        embedded(hashed, "sum"),
        embedded(hashed, "sqrtn"),
        embedded(listed),
        embedded(listed_with_buckets),
        embedded(listed_with_default),
        hashed,
        listed,
    ],
)
def test_words_give_bit_identical_results(make: Callable[[Any], Any], tmp_path: Path) -> None:
    source = export_column(tmp_path / "in", make)
    model, (result,) = passed(source, CollapseSingleValuedColumns())
    assert (result.applied, result.refused) == (1, [])
    assert not SPARSE & set(ops(model))
    # A linear model refuses an empty batch, since it reshapes to [batch, -1].
    assert_same(source, model, tmp_path / "out", WORD_REQUESTS[: -1 if make in (hashed, listed) else None])


def test_hashed_word_needs_no_check_of_its_id(tmp_path: Path) -> None:
    source = export_column(tmp_path / "in", embedded(hashed))
    model, _ = passed(source, CollapseSingleValuedColumns())
    wanted = {"ExpandDims": 1, "NotEqual": 1, "StringToHashBucketFast": 1, "ResourceGather": 1, "SelectV2": 1}
    assert ops(model) == wanted | {"Identity": 2}


@pytest.mark.parametrize("default", [None, 4])
def test_numbers_give_bit_identical_results(default: int | None, tmp_path: Path) -> None:
    def make(column: Any) -> Any:
        return column.embedding_column(column.categorical_column_with_identity("word", 10, default), 5)

    source = export_column(tmp_path / "in", make, "int64")
    model, (result,) = passed(source, CollapseSingleValuedColumns())
    assert (result.applied, result.refused) == (1, [])
    if default is None:
        assert_same(source, model, tmp_path / "out", NUMBER_REQUESTS, refused=OUT_OF_RANGE)
    else:
        assert_same(source, model, tmp_path / "out", NUMBER_REQUESTS + OUT_OF_RANGE)


def test_hashed_numbers_give_bit_identical_results(tmp_path: Path) -> None:
    def make(column: Any) -> Any:
        import tensorflow as tf

        return column.embedding_column(column.categorical_column_with_hash_bucket("word", 9, tf.int64), 5)

    source = export_column(tmp_path / "in", make, "int64", (None, 1))
    model, (result,) = passed(source, CollapseSingleValuedColumns())
    assert result.applied == 1
    assert ops(model)["AsString"] == 1
    assert_same(source, model, tmp_path / "out", columns(NUMBER_REQUESTS + OUT_OF_RANGE))


def test_several_values_per_row_are_refused(tmp_path: Path) -> None:
    source = export_column(tmp_path / "in", embedded(hashed), shape=(None, 3))
    _, (result,) = passed(source, CollapseSingleValuedColumns())
    assert result.applied == 0
    assert "holds 3 values per row, expected one" in result.refused[0][1]


def test_ids_that_depend_on_each_other_are_refused(tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        import tensorflow as tf

        weights = v1.get_variable("table", [10, 4])
        fed = v1.placeholder("int64", [None, 1])
        made = tf.sparse.from_dense(fed)
        ids = tf.SparseTensor(made.indices, tf.cumsum(made.values), made.dense_shape)
        return {"word": fed}, {"rows": tf.identity(v1.nn.safe_embedding_lookup_sparse(weights, ids))}

    source = export_graph(tmp_path / "in", build)
    _, (result,) = passed(source, CollapseSingleValuedColumns())
    assert result.applied == 0
    assert "(Cumsum) is not known to look at each id alone" in result.refused[0][1]


def test_default_id_is_looked_up_for_missing_values(tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        import tensorflow as tf

        weights = v1.get_variable("table", [10, 4])
        fed = v1.placeholder("int64", [None, 1])
        ids = tf.sparse.from_dense(fed)
        return {"word": fed}, {"rows": tf.identity(v1.nn.safe_embedding_lookup_sparse(weights, ids, default_id=6))}

    source = export_graph(tmp_path / "in", build)
    model, (result,) = passed(source, CollapseSingleValuedColumns())
    assert result.applied == 1
    assert not SPARSE & set(ops(model))
    assert_same(source, model, tmp_path / "out", columns(NUMBER_REQUESTS), columns(OUT_OF_RANGE))


def test_second_run_changes_nothing(tmp_path: Path) -> None:
    source = export_column(tmp_path / "in", embedded(hashed))
    _, (first, second) = passed(source, CollapseSingleValuedColumns(), CollapseSingleValuedColumns())
    assert (first.applied, second.applied, second.refused) == (1, 0, [])


def test_wide_and_deep_shrinks_to_a_sixth_of_its_nodes(wdl_model: Path, tmp_path: Path) -> None:
    model, (result,) = passed(wdl_model, CollapseSingleValuedColumns())
    assert (result.applied, result.refused) == (52, [])
    assert len(model.graph) <= 800
    letters = [b"", b"a", b"zz", "żółw".encode(), b"12"]
    feeds = []
    for rows in (1, 3):
        random = np.random.default_rng(rows)
        feed = {f"I{i + 1}": random.normal(size=rows).astype(np.float32) for i in range(13)}
        feed |= {f"C{i + 1}": np.array(letters, object)[random.integers(0, 5, rows)] for i in range(26)}
        feeds.append(feed)
    assert_same(wdl_model, model, tmp_path / "out", feeds)
