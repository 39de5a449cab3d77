# SPDX-License-Identifier: Apache-2.0
"""Indicator columns stay dense, with bit-identical results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.passes.cut.collapse_sparse_to_dense import CollapseSparseToDense
from helpers.models.idiom_models import assert_same, export_function, export_graph, ops, passed

WORDS = [[b"a", b"", b"none"], [b"", b"", b""], [b"b", b"a", b"a"]]


def hashed(column: Any) -> Any:
    return column.categorical_column_with_hash_bucket("word", 7)


def listed(column: Any) -> Any:
    return column.categorical_column_with_vocabulary_list("word", ["a", "b"], num_oov_buckets=2)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("categorical", [hashed, listed])
def test_indicator_gives_bit_identical_results(categorical: Callable[[Any], Any], width: int, tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        import tensorflow as tf

        fed = v1.placeholder("string", [None, width])
        column = tf.feature_column.indicator_column(categorical(tf.feature_column))
        return {"word": fed}, {"rows": tf.identity(v1.feature_column.input_layer({"word": fed}, [column]))}

    source = export_graph(tmp_path / "in", build)
    model, (first, second) = passed(source, CollapseSparseToDense(), CollapseSparseToDense())
    assert (first.applied, first.refused, second.applied, second.refused) == (1, [], 0, [])
    assert not {"SparseToDense", "Where", "GatherNd"} & set(ops(model))
    words = np.array(WORDS, object)[:, :width]
    assert_same(source, model, tmp_path / "out", [{"word": words}, {"word": words[:1]}, {"word": words[:0]}])


def test_values_that_depend_on_each_other_are_refused(tmp_path: Path) -> None:
    import tensorflow as tf

    def serve(x: Any) -> dict[str, Any]:
        made = tf.sparse.from_dense(x)
        summed = tf.SparseTensor(made.indices, tf.cumsum(made.values), made.dense_shape)
        return {"y": tf.sparse.to_dense(summed, default_value=-1)}

    source = export_function(tmp_path / "in", serve, [tf.TensorSpec([None, 2], tf.int64, name="x")])
    model, (result,) = passed(source, CollapseSparseToDense())
    assert result.applied == 0
    assert "(Cumsum) is not known to look at each id alone" in result.refused[0][1]
    assert_same(source, model, tmp_path / "out", [{"x": np.array([[1, 0], [2, 3]])}])
