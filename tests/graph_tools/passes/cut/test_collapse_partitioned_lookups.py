# SPDX-License-Identifier: Apache-2.0
"""Lookups in parts of a table become one lookup with bit-identical results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.graph.sparse_lookup import add_lookup, table_of
from graph_tools.model import Model
from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.passes.cut.collapse_partitioned_lookups import CollapsePartitionedLookups
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers import read_model
from graph_tools.recognition.lookups.partitions import interleaved
from graph_tools.tensors import ArrayTensor
from helpers.models.idiom_models import assert_same, export_graph, ops, passed, table

REQUESTS = [{"ids": np.array(ids, np.int64)} for ids in ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [10, 10, 3], [], [7])]
REFUSED = [{"ids": np.array(ids, np.int64)} for ids in ([11, 1], [-1])]


def export(path: Path, strategy: str, parts: int, sparse: bool = False) -> Path:
    """Export a lookup of ids [n] in 11 rows of 5, split into parts by a TF 1 partitioner."""

    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        import tensorflow as tf

        whole = table(11, 5)

        def rows_of_part(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
            begin = partition_info.var_offset[0]
            return tf.constant(whole[begin : begin + int(shape[0])])

        if strategy == "mod":
            held = [v1.get_variable(f"emb/part_{i}", initializer=whole[i::parts]) for i in range(parts)]
        else:
            partitioner = v1.fixed_size_partitioner(parts)
            held = v1.get_variable("emb", [11, 5], initializer=rows_of_part, partitioner=partitioner)
        ids = v1.placeholder(tf.int64, [None])
        if not sparse:
            return {"ids": ids}, {"rows": tf.identity(v1.nn.embedding_lookup(held, ids, partition_strategy=strategy))}
        places = tf.stack([tf.range(tf.size(ids)) // 2, tf.range(tf.size(ids))], 1)
        shape = tf.cast(tf.stack([tf.size(ids), tf.size(ids)]), tf.int64)
        of_rows = tf.SparseTensor(tf.cast(places, tf.int64), ids, shape)
        return {"ids": ids}, {
            "rows": tf.identity(v1.nn.safe_embedding_lookup_sparse(held, of_rows, partition_strategy=strategy))
        }

    return export_graph(path, build)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("parts", [2, 3, 4])
@pytest.mark.parametrize("strategy", ["div", "mod"])
def test_parts_of_a_variable_become_one_variable(strategy: str, parts: int, sparse: bool, tmp_path: Path) -> None:
    source = export(tmp_path / "in", strategy, parts, sparse)
    model, (first, second) = passed(source, CollapsePartitionedLookups(), CollapsePartitionedLookups())
    assert (first.applied, first.refused, second.applied, second.refused) == (1, [], 0, [])
    assert not {"DynamicPartition", "DynamicStitch", "ParallelDynamicStitch"} & set(ops(model))
    assert list(model.variables) == ["emb"]
    np.testing.assert_array_equal(model.variables["emb"].read(), table(11, 5))
    if sparse:  # which drops negative ids
        assert_same(source, model, tmp_path / "out", [*REQUESTS, REFUSED[1]], REFUSED[:1])
    else:
        assert_same(source, model, tmp_path / "out", REQUESTS, REFUSED)


def test_part_with_another_user_is_refused(tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        import tensorflow as tf

        held = [v1.get_variable(f"emb/part_{i}", initializer=table(4, 5)) for i in range(2)]
        ids = v1.placeholder(tf.int64, [None])
        rows = v1.nn.embedding_lookup(held, ids, partition_strategy="mod") + tf.reduce_sum(held[1])
        return {"ids": ids}, {"rows": rows}

    _, (result,) = passed(export_graph(tmp_path / "in", build), CollapsePartitionedLookups())
    assert result.applied == 0
    assert "'emb/part_1' is also used by" in result.refused[0][1]


def test_unknown_layouts_of_rows_are_refused(tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        import tensorflow as tf

        held = [v1.get_variable(f"emb/part_{i}", initializer=table(4, 5)) for i in range(2)]
        ids = v1.placeholder(tf.int64, [None])
        part = 1 - tf.cast(ids % 2, tf.int32)
        rows = [
            tf.gather(part, ids_of_part)
            for part, ids_of_part in zip(held, tf.dynamic_partition(ids // 2, part, 2), strict=True)
        ]
        places = tf.dynamic_partition(tf.range(tf.size(ids)), part, 2)
        return {"ids": ids}, {"rows": tf.dynamic_stitch(places, rows)}

    _, (result,) = passed(export_graph(tmp_path / "in", build), CollapsePartitionedLookups())
    assert result.applied == 0
    assert "neither consecutive rows ('div') nor every n-th row ('mod')" in result.refused[0][1]


def keyed(tmp_path: Path, keys: list[list[int]], absents: list[Absent], quotient: bool = False) -> Model:
    """A model whose parts are tables with keys, where a key is sent to part `key mod 1000 mod n`."""
    count = len(keys)

    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        import tensorflow as tf

        ids = v1.placeholder(tf.int64, [None])
        held = [v1.get_variable(f"part_{i}", [3, 2]) for i in range(count)]
        part = tf.cast(ids % 1000 % count, tf.int32)
        sent = tf.dynamic_partition(ids // count if quotient else ids, part, count)
        rows = [tf.gather(part, each) for part, each in zip(held, sent, strict=True)]
        places = tf.dynamic_partition(tf.range(tf.size(ids)), part, count)
        return {"ids": ids}, {"rows": tf.dynamic_stitch(places, rows)}

    model = read_model(export_graph(tmp_path / "in", build))
    PruneUnreachable().apply(model)
    for gather in model.graph.of("ResourceGather"):
        name = f"user/{gather.inputs[0].node}"
        number = int(name[-1])
        rows = ArrayTensor(np.array([[key, key] for key in keys[number]], np.float32).reshape(-1, 2))
        part = Part(ArrayTensor(np.array(keys[number], np.int64)), rows, frequencies=rows)
        model.sparse_tables[name] = SparseTable(
            name, "deeprec", np.dtype(np.int64), 2, np.dtype(np.float32), [part], absents[number]
        )
        lookup = add_lookup(model.graph, name, gather.inputs[1], np.int64, 2, np.float32)
        model.graph.replace(gather.output(), lookup.output())
    return model


def zeros() -> Absent:
    return Absent(None, "test")


def test_parts_of_a_table_with_keys_become_one_table(tmp_path: Path) -> None:
    model = keyed(tmp_path, [[0, 2, 1004], [1, 7]], [zeros(), zeros()])
    result = CollapsePartitionedLookups().apply(model)
    PruneUnreachable().apply(model)
    assert (result.applied, result.refused) == (1, [])
    (lookup,) = model.graph.of("SparseLookup")
    assert model.graph[lookup.inputs[0].node].op == "Placeholder"
    merged = model.sparse_tables[table_of(lookup)]
    assert (merged.name, merged.count, len(model.sparse_tables)) == ("user", 5, 1)
    assert not merged.dropped_tensors


def test_key_in_a_part_that_lookups_do_not_reach_is_dropped(tmp_path: Path) -> None:
    model = keyed(tmp_path, [[0, 3, 2, 5], [1, 1003]], [zeros(), zeros()])
    assert CollapsePartitionedLookups().apply(model).applied == 1
    PruneUnreachable().apply(model)
    (merged,) = model.sparse_tables.values()
    assert [part.keys.read().tolist() for part in merged.parts] == [[0, 2], [1, 1003]]
    assert merged.parts[0].rows.read()[:, 0].tolist() == [0, 2]
    assert merged.parts[0].frequencies is not None
    assert len(merged.parts[0].frequencies.read()) == 2
    assert merged.misplaced == 2


def test_different_rows_for_absent_keys_are_refused(tmp_path: Path) -> None:
    row = Absent(np.ones((1, 2), np.float32), "test")
    result = CollapsePartitionedLookups().apply(keyed(tmp_path, [[0], [1]], [zeros(), row]))
    assert result.applied == 0
    assert "different rows for an absent key" in result.refused[0][1]


def test_keys_that_are_changed_before_the_lookup_are_refused(tmp_path: Path) -> None:
    result = CollapsePartitionedLookups().apply(keyed(tmp_path, [[0], [1]], [zeros(), zeros()], quotient=True))
    assert result.applied == 0
    assert "expected the ids" in result.refused[0][1]


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 100])
def test_interleaved_rows_are_read_in_small_blocks(rows: int) -> None:
    whole = np.arange(22).reshape(11, 2)
    tensor = interleaved([ArrayTensor(whole[part::3]) for part in range(3)])
    blocks = list(tensor.chunks(rows))
    assert max(map(len, blocks)) <= rows
    np.testing.assert_array_equal(np.concatenate(blocks), whole)
