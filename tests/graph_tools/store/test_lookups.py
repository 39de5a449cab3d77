# SPDX-License-Identifier: Apache-2.0
"""Test that libprocessor finds the keys in a file that graph-tools wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import UnreadableError
from graph_tools.graph import Graph, is_native
from graph_tools.graph.op_library import load_library
from graph_tools.plans.embedding_parts import GroupOutput, Key, Lookup
from graph_tools.plans.embedding_plan import EmbeddingPlan
from graph_tools.store import TableReader
from graph_tools.store.layout import ROW_TYPES
from graph_tools.tensors import Array, ArrayTensor
from helpers.models.embedding_tables import INDEX_KINDS, absent_of, present_of, rows_of, spec_of, written


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    try:
        load_library()
    except UnreadableError as error:
        pytest.skip(str(error))
    if not is_native("RecEmbeddingGroup"):
        pytest.skip("a libprocessor without embedding groups")


def looked_up(file: Path, keys: Array, dim: int) -> Array:
    """Look keys up through the ops."""
    import tensorflow as tf

    plan = EmbeddingPlan((GroupOutput(dim),), (Key(0),), (Lookup(0, 0, 0, 0),))
    plan.check(1, [dim])
    graph = Graph()
    table = graph.add("RecEmbeddingTable", attrs={"dim": dim}).output()
    fill = graph.add("RecInitializeEmbeddingTable", [table, graph.add_const(str(file))]).name
    attrs = {"Tfeatures": [keys.dtype], "num_tables": 1, "num_outputs": 1, "plan": plan.to_json()}
    found = graph.add("RecEmbeddingGroup", [graph.add_const(keys), table], attrs=attrs).output()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(graph.to_graph_def(), name="")
        session.run(fill)
        rows: Array = session.run(str(found))
        return rows


@pytest.mark.parametrize("row_type", ROW_TYPES)
@pytest.mark.parametrize("kind", INDEX_KINDS)
def test_library_reads_what_the_reader_reads(tmp_path: Path, kind: str, row_type: str) -> None:
    default = ArrayTensor(rows_of(3, 5, seed=7) + 10)
    file = written(tmp_path, spec_of(kind, 2003, row_type=row_type, absent_key="default", default_rows=default))
    keys = np.concatenate([present_of(kind, 2003), absent_of(kind, 2003)])
    np.testing.assert_array_equal(looked_up(file, keys, 5), TableReader(file).lookup(keys))


@pytest.mark.parametrize("kind", INDEX_KINDS)
def test_absent_keys(tmp_path: Path, kind: str) -> None:
    import tensorflow as tf

    keys = np.concatenate([absent_of(kind, 11), present_of(kind, 11)])
    file = written(tmp_path, spec_of(kind, 11))
    np.testing.assert_array_equal(looked_up(file, keys, 5), TableReader(file).lookup(keys))
    file = written(tmp_path, spec_of(kind, 11, absent_key="error"))
    with pytest.raises(tf.errors.InvalidArgumentError, match=file.name):
        looked_up(file, keys, 5)
