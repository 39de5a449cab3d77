# SPDX-License-Identifier: Apache-2.0
"""Lookups of unique ids become lookups of ids, with bit-identical results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.graph import Output
from graph_tools.graph.sparse_lookup import add_lookup
from graph_tools.passes.cut.collapse_unique import CollapseUnique
from graph_tools.readers import read_model
from helpers.models.idiom_models import assert_same, export_function, ops, passed, table

REQUESTS = [{"ids": np.array(ids, np.int64)} for ids in ([3, 1, 3, 3, 9], [0], [], list(range(10)) * 5)]
REFUSED = [{"ids": np.array(ids, np.int64)} for ids in ([-1, 3], [10])]


def export(path: Path, rows: Callable[[Any, Any], Any]) -> Path:
    """Export `rows(table [10, 6], ids [n])`."""
    import tensorflow as tf

    weights = tf.Variable(table(10, 6))
    specs = [tf.TensorSpec([None], tf.int64, name="ids")]
    return export_function(path, lambda ids: {"rows": rows(weights, ids)}, specs, weights=weights)


def gathered(weights: Any, ids: Any) -> Any:
    import tensorflow as tf

    unique, numbers = tf.unique(ids)
    return tf.gather(tf.gather(weights, unique), numbers)


@pytest.mark.parametrize("op", ["mean", "sum", "sqrtn"])
def test_segments_give_bit_identical_results(op: str, tmp_path: Path) -> None:
    def combined(weights: Any, ids: Any) -> Any:
        import tensorflow as tf

        indices = tf.cast(tf.stack([tf.range(tf.size(ids)) // 2, tf.range(tf.size(ids))], 1), tf.int64)
        sparse = tf.SparseTensor(indices, ids, tf.cast(tf.stack([tf.size(ids), tf.size(ids)]), tf.int64))
        return tf.nn.embedding_lookup_sparse(weights, sparse, None, combiner=op)

    source = export(tmp_path / "in", combined)
    model, (result,) = passed(source, CollapseUnique())
    assert (result.applied, result.refused) == (1, [])
    assert not {"Unique", "ResourceGather"} & set(ops(model))
    assert_same(source, model, tmp_path / "out", REQUESTS, REFUSED)


def test_gather_by_number_is_one_gather(tmp_path: Path) -> None:
    source = export(tmp_path / "in", gathered)
    model, (first, second) = passed(source, CollapseUnique(), CollapseUnique())
    assert (first.applied, second.applied, second.refused) == (1, 0, [])
    assert ops(model)["ResourceGather"] == 1
    assert not {"Unique", "GatherV2"} & set(ops(model))
    assert_same(source, model, tmp_path / "out", REQUESTS, REFUSED)


def test_numbers_of_unique_ids_with_another_user_are_refused(tmp_path: Path) -> None:
    def used(weights: Any, ids: Any) -> Any:
        import tensorflow as tf

        unique, numbers = tf.unique(ids)
        return tf.gather(tf.gather(weights, unique), numbers) * tf.cast(numbers, tf.float32)[:, None]

    source = export(tmp_path / "in", used)
    _, (result,) = passed(source, CollapseUnique())
    assert result.applied == 0
    assert "uses the numbers of the ids as well" in result.refused[0][1]


def test_table_with_keys_is_looked_up_directly(tmp_path: Path) -> None:
    model = read_model(export(tmp_path / "in", gathered))
    graph = model.graph
    gather = graph.of("ResourceGather")[0]
    keys = gather.inputs[1]
    lookup = add_lookup(graph, "items", keys, np.int64, 6, np.float32)
    graph.replace(Output(gather.name), lookup.output())
    assert CollapseUnique().apply(model).applied == 1
    # Which may be left to the next prune are nodes that only effects hold.
    users = [user for user in graph.of("SparseLookup") if graph.users(user.name)]
    assert len(users) == 1
    assert graph.input(users[0], 0).op != "Unique"
