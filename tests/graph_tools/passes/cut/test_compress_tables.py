# SPDX-License-Identifier: Apache-2.0
"""Embedding variables that are stored in fewer bytes return the same rows as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.model import Model
from graph_tools.options import CutOptions
from graph_tools.passes.cut.collapse_safe_embedding_lookup import CollapseSafeEmbeddingLookup
from graph_tools.passes.cut.compress_tables import CompressTables
from graph_tools.passes.cut.eliminate_control_inputs import EliminateControlInputs
from graph_tools.passes.cut.eliminate_identities import EliminateIdentities
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers import read_model
from graph_tools.store.rows import dequantize, quantize
from graph_tools.tables.plain import PlainTable
from graph_tools.tables.plan import plan_variable
from graph_tools.tensors import ArrayTensor
from helpers.models.idiom_models import export_function
from helpers.models.sparse_table_models import Loaded, Served, checkpoint_bytes, lookup_model, make_table

ROWS, DIM = 5000, 7


def exported(path: Path, body: Any, table: np.ndarray, spec: Any) -> Model:
    """Export ids -> rows = body(table, ids) from TF 2, and read it."""
    import tensorflow as tf

    module = tf.Module()
    module.table = tf.Variable(table, name="table")

    @tf.function(input_signature=[spec])
    def serve(ids: Any) -> dict[str, Any]:
        return {"rows": body(module.table, ids)}

    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    model = read_model(path)
    PruneUnreachable().apply(model)
    EliminateControlInputs().apply(model)
    EliminateIdentities().apply(model)
    return model


def integers() -> Any:
    import tensorflow as tf

    return tf.TensorSpec(None, tf.int64, name="ids")


def gather(table: Any, ids: Any) -> Any:
    import tensorflow as tf

    return tf.nn.embedding_lookup(table, ids)


def read_and_gather(table: Any, ids: Any) -> Any:
    import tensorflow as tf

    return tf.raw_ops.GatherV2(params=table.read_value(), indices=ids, axis=tf.constant(0))


def sparse_rows(random: np.random.Generator) -> np.ndarray:
    rows = random.normal(size=(ROWS, DIM)).astype(np.float32)
    rows[random.random(ROWS) < 0.8] = 0
    rows[100] = np.float32(-0.0)
    return rows


@pytest.mark.parametrize("row_type", ["fp32", "bf16", "fp16", "int8", "int4"])
@pytest.mark.parametrize("body", [gather, read_and_gather])
@pytest.mark.parametrize("kind", ["whole", "zeros"])
def test_lookups_return_the_same_rows(tmp_path: Path, kind: str, body: Any, row_type: str) -> None:
    import ml_dtypes

    random = np.random.default_rng(1)
    table = sparse_rows(random) if kind == "zeros" else random.normal(size=(ROWS, DIM)).astype(np.float32)
    model = exported(tmp_path / "in", body, table, integers())
    compress = CompressTables(CutOptions(embedding_dtype=row_type))
    result = compress.apply(model)
    (record,) = compress.records
    assert result.applied == (0 if (kind, row_type) == ("whole", "fp32") else 1)
    assert record.dtype == row_type
    assert record.layout == ("remap" if kind == "zeros" else "direct")
    assert record.zero_rows == int((~table.any(axis=1)).sum())
    serve = Served(model, tmp_path / "out")
    ids = random.integers(0, ROWS, (40, 3))
    expected = {
        "fp32": lambda: table,
        "bf16": lambda: table.astype(ml_dtypes.bfloat16).astype(np.float32),
        "fp16": lambda: table.astype(np.float16).astype(np.float32),
    }.get(row_type, lambda: dequantize(quantize(table, row_type), row_type, DIM))()
    for asked in (ids, ids[:0], ids[0, 0], np.arange(ROWS)):
        np.testing.assert_array_equal(serve(ids=asked), expected[asked])
    assert abs(checkpoint_bytes(serve.path) - record.bytes) < 1500
    # What it made is no table to it again.
    assert CompressTables(CutOptions(embedding_dtype="int8")).apply(model).applied == (
        1 if (kind, row_type) == ("whole", "fp32") else 0
    )


def test_index_beyond_the_table_is_an_error_as_before(tmp_path: Path) -> None:
    import tensorflow as tf

    model = exported(tmp_path / "in", gather, sparse_rows(np.random.default_rng(2)), integers())
    CompressTables().apply(model)
    serve = Served(model, tmp_path / "out")
    for wrong in (-1, ROWS):
        with pytest.raises(tf.errors.InvalidArgumentError, match="not in"):
            serve(ids=np.array([wrong]))


def test_duplicate_rows_are_stored_once(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    table = random.normal(size=(30, DIM)).astype(np.float32)[random.integers(0, 30, ROWS)]
    model = exported(tmp_path / "in", gather, table, integers())
    compress = CompressTables()
    compress.apply(model)
    (record,) = compress.records
    assert (record.layout, record.share, record.stored_rows) == ("remap", "equal", 30)
    found = Served(model, tmp_path / "out")(ids=np.arange(ROWS))
    np.testing.assert_array_equal(found, table)


def test_rows_that_no_hash_reaches_are_dropped(tmp_path: Path) -> None:
    import tensorflow as tf

    def body(table: Any, words: Any) -> Any:
        return tf.nn.embedding_lookup(table, tf.strings.to_hash_bucket_fast(words, 1000))

    table = np.random.default_rng(4).normal(size=(ROWS, DIM)).astype(np.float32)
    model = exported(tmp_path / "in", body, table, tf.TensorSpec([None], tf.string, name="ids"))
    compress = CompressTables()
    compress.apply(model)
    (record,) = compress.records
    assert record.dropped == {"dead": ROWS - 1000}
    assert record.stored_rows == 1000
    assert any("dead" in reason for reason in record.reasons)
    words = np.array([b"a", b"", b"word", *(b"%d" % index for index in range(500))], object)
    expected = table[tf.strings.to_hash_bucket_fast(words, 1000).numpy()]
    np.testing.assert_array_equal(Served(model, tmp_path / "out")(ids=words), expected)


def test_small_rows_become_one_row_of_zeros_with_the_option(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    table = random.normal(size=(ROWS, DIM)).astype(np.float32)
    table[: ROWS // 2] *= np.float32(1e-5)
    model = exported(tmp_path / "in", gather, table, integers())
    compress = CompressTables(CutOptions(min_norm=1e-2))
    compress.apply(model)
    (record,) = compress.records
    assert record.lossy_rows == record.below_norm == ROWS // 2
    table[: ROWS // 2] = 0
    np.testing.assert_array_equal(Served(model, tmp_path / "out")(ids=np.arange(ROWS)), table)


def test_small_rows_stay_where_dropping_them_saves_nothing() -> None:
    table = np.ones((ROWS, DIM), np.float32) * np.arange(1, ROWS + 1, dtype=np.float32)[:, None]
    model = lookup_model(make_table(np.arange(3), np.ones((3, DIM), np.float32)))
    model.variables["v"] = ArrayTensor(table)
    plan = plan_variable(model, PlainTable("v", (), ()), CutOptions(min_norm=5.0))
    assert plan.analysis.below_norm == 1
    assert plan.lossy_rows == 0
    assert not plan.changes


@pytest.mark.parametrize(
    ("reader", "reason"),
    [
        (lambda table, ids: gather(table, ids) @ table.read_value()[:DIM], "reads all of it"),
        (lambda table, ids: _tf().gather(table.read_value(), ids, axis=1), "another axis"),
    ],
)
def test_variable_with_other_readers_is_not_a_table(tmp_path: Path, reader: Any, reason: str) -> None:
    table = np.zeros((ROWS, DIM), np.float32)
    model = exported(tmp_path / "in", reader, table, integers())
    compress = CompressTables(CutOptions(embedding_dtype="int8"))
    result = compress.apply(model)
    assert result.applied == 0
    assert reason in " ".join(why for _, why in result.refused)


def test_wide_table_stays_float(tmp_path: Path) -> None:
    table = np.random.default_rng(6).normal(size=(ROWS, 1)).astype(np.float32)
    model = exported(tmp_path / "in", gather, table, integers())
    compress = CompressTables(CutOptions(embedding_dtype="int8"))
    assert compress.apply(model).applied == 0
    assert "kept as float32" in " ".join(compress.records[0].reasons)


def test_values_beyond_half_precision_stay_float(tmp_path: Path) -> None:
    table = np.full((ROWS, DIM), 1e6, np.float32)
    table[:, 0] = np.arange(ROWS)
    model = exported(tmp_path / "in", gather, table, integers())
    compress = CompressTables(CutOptions(embedding_dtype="fp16"))
    assert compress.apply(model).applied == 0
    assert "65504" in " ".join(compress.records[0].reasons)


def bags(path: Path, tables: list[np.ndarray]) -> Path:
    """Export a bag of words for each table, combined by mean, sum and sqrtn in turn."""
    import tensorflow as tf

    held = [tf.Variable(table) for table in tables]

    def serve(words: Any) -> dict[str, Any]:
        rows = []
        for number, (table, bag) in enumerate(zip(held, tf.unstack(words, axis=1), strict=True)):
            made = tf.sparse.from_dense(bag)
            ids = tf.SparseTensor(
                made.indices, tf.strings.to_hash_bucket_fast(made.values, len(table)), made.dense_shape
            )
            combiner = ["mean", "sum", "sqrtn"][number % 3]
            rows.append(tf.nn.safe_embedding_lookup_sparse(table, ids, combiner=combiner))
        return {"rows": tf.concat(rows, 1)}

    return export_function(path, serve, [tf.TensorSpec([None, len(tables), None], tf.string, name="words")], held=held)


@pytest.mark.parametrize("row_type", ["fp32", "bf16", "int8", "int4"])
@pytest.mark.parametrize("kind", ["whole", "zeros"])
def test_combined_rows_are_the_same(tmp_path: Path, kind: str, row_type: str) -> None:
    import ml_dtypes

    random = np.random.default_rng(8)
    tables = [random.normal(size=(1000 + index, 16)).astype(np.float32) for index in range(3)]
    for table in tables if kind == "zeros" else []:
        table[random.random(len(table)) < 0.8] = 0
    model = read_model(bags(tmp_path / "in", tables))
    for pass_ in (PruneUnreachable(), EliminateControlInputs(), EliminateIdentities(), CollapseSafeEmbeddingLookup()):
        pass_.apply(model)
    compress = CompressTables(CutOptions(embedding_dtype=row_type))
    result = compress.apply(model)
    assert not result.refused
    assert result.applied == (0 if (kind, row_type) == ("whole", "fp32") else 3)
    assert {record.layout for record in compress.records} == {"remap" if kind == "zeros" else "direct"}
    # Rows of as many bits are combined where they are stored.
    assert bool(model.graph.of("Range")) == (row_type != "fp32")
    rounded = {
        "fp32": lambda rows: rows,
        "bf16": lambda rows: rows.astype(ml_dtypes.bfloat16).astype(np.float32),
    }.get(row_type, lambda rows: dequantize(quantize(rows, row_type), row_type, 16))
    expected = Loaded(bags(tmp_path / "rounded", [rounded(table) for table in tables]))
    serve = Served(model, tmp_path / "out")
    vocabulary = np.array([b"", b"", *(b"%d" % number for number in range(900))], object)
    for rows, width in ((1, 1), (7, 5), (64, 3), (3, 0), (0, 2)):
        words = vocabulary[random.integers(0, len(vocabulary), (rows, 3, width))]
        np.testing.assert_array_equal(serve(words=words), expected(words=words))
    assert CompressTables(CutOptions()).apply(model).applied == 0


def _tf() -> Any:
    import tensorflow as tf

    return tf
