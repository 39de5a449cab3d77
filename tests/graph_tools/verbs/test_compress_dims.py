# SPDX-License-Identifier: Apache-2.0
"""Rare rows keep few elements in a rotated basis, and a product after pooling turns vectors back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
import graph_tools
from graph_tools.errors import UsageError
from graph_tools.readers import read_model
from graph_tools.tables.mixed_dims import RowWidth
from helpers.graph_tools.cut_models import build_sparse, run
from helpers.graph_tools.stock_answers import answers

COUNT, DIM, WIDTHS = 1000, 16, [RowWidth(16, 50), RowWidth(6, 200), RowWidth(3)]
USERS = np.random.default_rng(0).integers(1, 1 << 62, COUNT)


def _rows() -> np.ndarray:
    """Return rows [1000, 16] that are nearly in three dimensions, with norms that descend."""
    random = np.random.default_rng(1)
    inside = random.normal(size=(COUNT, 3)) @ random.normal(size=(3, DIM))
    noise = random.normal(0, 0.02, (COUNT, DIM))
    return ((inside + noise) / np.sqrt(1 + np.arange(COUNT))[:, None]).astype(np.float32)


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that looks users up alone and in histories, whose rows are averaged."""
    module = tf.Module()
    module.user = et.HashEmbeddingModule(DIM, name="user_id")
    module.user(tf.constant([0], tf.int64), training=False)
    module.user.table.insert(USERS, _rows())
    kernel = tf.constant(np.random.default_rng(2).normal(size=(2 * DIM, 1)).astype(np.float32))

    def serve(features: dict[str, Any]) -> dict[str, Any]:
        alone = module.user(features["user"], training=False)
        pooled = tf.reduce_mean(module.user(features["history"], training=False), axis=1)
        return {"score": tf.matmul(tf.concat([alone, pooled], 1), kernel)}

    inputs = {"user": tf.TensorSpec([None], tf.int64), "history": tf.TensorSpec([None, 3], tf.int64)}
    folder = tmp_path_factory.mktemp("dims")
    et.export(module, folder / "export", inputs=inputs, function=serve)
    request = _request(500)
    scores = score(folder / "export", request)
    labels = np.random.default_rng(3).random(500) < 1 / (1 + np.exp(-scores))
    np.savez(folder / "labeled.npz", labels=labels.astype(np.int64), **request)
    return folder / "export"


def _request(count: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(4)
    keys = np.append(USERS, [7])  # 7 is absent
    return {"user": random.choice(keys, count), "history": random.choice(keys, (count, 3))}


def score(model: Path, request: dict[str, np.ndarray]) -> np.ndarray:
    served = tf.saved_model.load(str(model)).signatures["serving_default"]
    return served(**{name: tf.constant(value) for name, value in request.items()})["score"].numpy()[:, 0]


def test_rows_keep_what_says_most(export: Path, tmp_path: Path) -> None:
    requests = [export.parent / "labeled.npz"]
    report = graph_tools.compress(export, tmp_path / "out", table="user_id", dims=WIDTHS, requests=requests)
    found = report.compressed
    assert (found.method, found.parts, found.dims) == ("dims", [50, 200, 750], [16, 6, 3])
    assert found.bytes == 4 * (50 * 16 + 200 * 6 + 750 * 3) + 8 * COUNT
    assert found.weighed_by == "norm"
    assert 0 < found.error < 1e-3
    (measured,) = report.auc
    assert abs(measured.before - measured.after) < 0.003
    request = _request(200)
    np.testing.assert_allclose(score(tmp_path / "out", request), score(export, request), atol=0.5)
    # The rows of the widest width are those of the table, up to rounding.
    largest = USERS[np.argsort(-np.square(_rows()).sum(axis=1))[:50]]
    widest = {"user": largest, "history": np.tile(largest[:, None], 3)}
    np.testing.assert_allclose(score(tmp_path / "out", widest), score(export, widest), atol=1e-4)
    graph = read_model(tmp_path / "out").graph
    (mean,) = graph.of("Mean")
    # The layer behind the concatenation turns vectors back.
    assert {user.op for user in graph.users(mean.name)} == {"ConcatV2"}
    assert len(graph.of("MatMul")) == 1
    assert not graph.of("BatchMatMulV2")


def test_a_fused_model_has_narrow_rows(export: Path, tmp_path: Path) -> None:
    graph_tools.compress(export, tmp_path / "out", table="user_id", dims=WIDTHS, without_labels=True)
    for row_type in ("fp32", "bf16"):
        options = graph_tools.options.CutOptions(embedding_dtype=row_type)
        fused = graph_tools.optimize(
            tmp_path / "out", tmp_path / row_type, precision="fp32", options=options, accept_weak_proof=True
        )
        (file,) = fused.table_files
        assert [(rows.first, rows.dim) for rows in file.narrow] == [(50, 6), (250, 3)]
        forecast = graph_tools.cut(tmp_path / "out", None, dry_run=True, options=options)
        assert [width.rows for width in forecast.tables[0].file.widths] == [50, 200, 750]
        assert forecast.tiers.tables[0].disk_bytes == forecast.tables[0].file.bytes == file.bytes
    printed = run("inspect", tmp_path / "fp32").out
    assert "6 elements from row 50 on, 3 elements from row 250 on" in " ".join(printed.split())
    request = _request(300)
    np.testing.assert_allclose(score(tmp_path / "fp32", request), score(tmp_path / "out", request), atol=1e-5)
    options = {"precision": "fp32", "skip_passes": ["narrow_table_rows"], "accept_weak_proof": True}
    (whole,) = graph_tools.optimize(tmp_path / "out", tmp_path / "whole", **options).table_files
    assert whole.narrow == []
    assert whole.bytes > file.bytes


def test_frequent_keys_are_wide_and_absent_ones_keep_their_row(tmp_path: Path) -> None:
    keys, rows = np.arange(100, dtype=np.int64) * 3, _rows()[:100, :8].copy()
    frequencies = np.random.default_rng(5).permutation(100) + 1
    default = np.full((1, 8), 0.25, np.float32)
    model = build_sparse(tmp_path / "model", keys=keys, rows=rows, freqs=frequencies, default=default)
    report = graph_tools.compress(
        model, tmp_path / "out", table="emb", dims=[RowWidth(8, 20), RowWidth(2)], without_labels=True
    )
    assert report.compressed.weighed_by == "frequency"
    graph_tools.cut(model, tmp_path / "cut", samples=4)
    request = {"item": np.append(keys[frequencies > 80], [1, 2])}
    before, after = (answers(tmp_path / name, request)["rows"] for name in ("cut", "out"))
    np.testing.assert_allclose(after, before, atol=1e-5)
    np.testing.assert_allclose(after[-2:], 0.25, atol=1e-5)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ("3:10,8", "expected widths that descend"),
        ("8:10", "each but the last with rows"),
        ("8:10,x", "'x', expected DIM:ROWS"),
        ("64:10,8", "rows of 16 elements, expected no more"),
        ("9:1,8:1,7:1,6:1,5", "5 widths, expected at most 4"),
    ],
)
def test_wrong_widths_are_named(export: Path, dims: str, message: str) -> None:
    found = run("compress", export, "--table", "user_id", "--dims", dims, "--dry-run")
    assert (found.code, message in found.err) == (2, True), found.err


def test_one_way_is_expected(export: Path) -> None:
    with pytest.raises(UsageError, match="expected exactly one of these"):
        graph_tools.compress(export, None, table="user_id", dims=WIDTHS, hashes=(2, 9), dry_run=True)
