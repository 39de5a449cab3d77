# SPDX-License-Identifier: Apache-2.0
"""Feature columns of every kind, in a deep and in a wide part, are one group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.graph_tools.group_checks import Fused, fused
from helpers.models.idiom_models import export_graph

WORDS = ["a", "b", "c"]


def _inputs(v1: Any) -> dict[str, Any]:
    kinds = {"word": "string", "other": "string", "id": "int64", "code": "int64", "age": "float32"}
    made = {key: v1.placeholder(kind, [None, 1], name=key) for key, kind in kinds.items()}
    return made | {"words": v1.placeholder("string", [None, None], name="words")}


def _build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    from tensorflow import feature_column as columns

    inputs = _inputs(v1)
    vocabulary = columns.categorical_column_with_vocabulary_list
    categorical = [
        vocabulary("word", WORDS, num_oov_buckets=2),
        vocabulary("other", WORDS, default_value=1),
        vocabulary("words", WORDS),
        columns.categorical_column_with_identity("id", 20, default_value=3),
        columns.categorical_column_with_hash_bucket("code", 50, dtype=v1.int64),
        columns.bucketized_column(columns.numeric_column("age"), [1.0, 5.0, 20.0]),
    ]
    deep = [columns.embedding_column(one, 4, combiner="sum") for one in categorical]
    deep += [columns.indicator_column(categorical[0]), columns.numeric_column("age", normalizer_fn=lambda x: x / 2.0)]
    wide = [*categorical, columns.numeric_column("age")]
    return inputs, {
        "deep": v1.identity(v1.feature_column.input_layer(inputs, deep), name="deep"),
        "wide": v1.identity(v1.feature_column.linear_model(inputs, wide), name="wide"),
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Fused:
    return fused(export_graph(tmp_path_factory.mktemp("columns") / "in", _build))


def test_feature_columns_become_one_group(made: Fused) -> None:
    assert sorted(output.width for output in made.plan.outputs) == [1, 6 * 4 + 5 + 1]
    assert made.ops() == {"RealDiv"}  # what makes a number of another one
    assert made.result.refused == []
    assert not made.model.hash_tables
    assert not made.model.init


def test_fused_feature_columns_keep_their_scores(made: Fused) -> None:
    def column(*values: Any, dtype: Any = object) -> np.ndarray:
        return np.array(values, dtype)[:, None]

    words = np.array([["a", "", "x"], ["", "", ""], ["c", "a", "b"], ["zz", "c", ""]], object)
    feeds = {
        "word": column("a", "zz", "", "other"), "other": column("b", "", "zz", "c"), "words": words,
        "id": column(0, 19, 20, -1, dtype=np.int64), "code": column(7, -1, -7, 0, dtype=np.int64),
        "age": column(0.5, 5.0, 100.0, -3.0, dtype=np.float32),
    }  # fmt: skip
    made.check(feeds, {key: value[:1] for key, value in feeds.items()}, exact=False)


def test_mean_of_words_omits_words_outside_the_vocabulary(tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        from tensorflow import feature_column as columns

        inputs = {"words": v1.placeholder("string", [None, None], name="words")}
        column = columns.categorical_column_with_vocabulary_list("words", WORDS)
        rows = v1.feature_column.input_layer(inputs, [columns.embedding_column(column, 4, combiner="mean")])
        return inputs, {"rows": v1.identity(rows, name="rows")}

    found = fused(export_graph(tmp_path / "in", build))
    assert "LookupTableFindV2" in found.ops()
    found.check({"words": np.array([["a", "x", "b"], ["x", "", ""], ["c", "c", ""]], object)}, exact=False)
