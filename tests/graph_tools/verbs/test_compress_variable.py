# SPDX-License-Identifier: Apache-2.0
"""Tables of ordinary embedding layers are compressed as tables with keys are: Keras 3, tf-keras and tf.Module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import graph_tools
from graph_tools.errors import UsageError
from graph_tools.readers import read_model
from graph_tools.tables.code_fit import fit
from graph_tools.tables.mixed_dims import RowWidth
from graph_tools.tables.row_codes import BinaryCode, QuotientRemainder
from helpers.models.idiom_models import table

COUNT, DIM = 600, 8
USERS = np.array([0, 1, 2, 25, 599, 300], np.int64)
ITEMS = np.array([[0, 1, 2], [7, 7, 9], [599, 1, 0], [4, 5, 6], [30, 31, 32], [100, 200, 300]], np.int64)


def rows(seed: int) -> np.ndarray:
    """Return rows whose first elements are the largest, so that narrow rows say most of them."""
    return table(COUNT, DIM, seed) * np.float32(0.6) ** np.arange(DIM, dtype=np.float32)


def keras_model(module: Any, path: Path) -> None:
    """Export a model of two embeddings and a dense layer, of Keras 3 or of tf-keras."""
    user = module.Input((), dtype="int64", name="user")
    items = module.Input((3,), dtype="int64", name="items")
    embeddings = [module.layers.Embedding(COUNT, DIM, name=name) for name in ("user_emb", "item_emb")]
    pooled = module.layers.GlobalAveragePooling1D()(embeddings[1](items))
    joined = module.layers.Concatenate()([embeddings[0](user), pooled])
    model = module.Model([user, items], module.layers.Dense(1, name="score")(joined))
    for seed, embedding in enumerate(embeddings):
        embedding.set_weights([rows(seed)])
    if module is keras:
        model.export(str(path), verbose=False)
    else:
        tf.saved_model.save(model, str(path))


class Module(tf.Module):
    """Look one variable up in every way: by a gather, by one whose ids are int32, and by an op on segments."""

    def __init__(self) -> None:
        super().__init__()
        self.user_emb = tf.Variable(rows(0), name="user_emb")
        self.item_emb = tf.Variable(rows(1), name="item_emb")

    @tf.function
    def serve(self, user: Any, items: Any) -> dict[str, Any]:
        count = tf.shape(items)[0]
        pooled = tf.sparse.segment_mean(
            self.item_emb, tf.reshape(items, [-1]), tf.repeat(tf.range(count), 3), num_segments=count
        )
        found = tf.nn.embedding_lookup(self.user_emb, tf.cast(user, tf.int32))
        return {"score": tf.reduce_sum(found, 1, keepdims=True) + tf.reduce_sum(pooled, 1, keepdims=True)}


def module_model(path: Path) -> None:
    module = Module()
    specs = [tf.TensorSpec([None], tf.int64, name="user"), tf.TensorSpec([None, 3], tf.int64, name="items")]
    tf.saved_model.save(module, str(path), signatures=module.serve.get_concrete_function(*specs))


EXPORTS: dict[str, Callable[[Path], None]] = {
    "keras": lambda path: keras_model(keras, path),
    "tf_keras": lambda path: keras_model(tf_keras, path),
    "module": module_model,
}


@pytest.fixture(scope="module", params=EXPORTS)
def export(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param) / "export"
    EXPORTS[request.param](path)
    return path


def score(path: Path) -> Any:
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    (found,) = served(user=tf.constant(USERS), items=tf.constant(ITEMS)).values()
    return found.numpy()[:, 0]


def weights_of(export: Path) -> tuple[Any, Any]:
    """Return the weights [dim] with which the score adds the rows of users and of items."""
    kernel = [np.asarray(source.read()) for source in read_model(export).variables.values() if source.shape == (16, 1)]
    return (kernel[0][:DIM, 0], kernel[0][DIM:, 0]) if kernel else (np.ones(DIM), np.ones(DIM))


@pytest.mark.parametrize("code", [BinaryCode(12, 2), QuotientRemainder(30, 20)], ids=lambda code: code.method)
def test_rows_become_sums_and_are_fused(export: Path, tmp_path: Path, code: Any) -> None:
    options = {"bits": 12, "blocks": 2} if isinstance(code, BinaryCode) else {"quotient_remainder": (30, 20)}
    for number, (name, ids) in enumerate((("user_emb", USERS), ("item_emb", ITEMS))):
        out = tmp_path / name
        report = graph_tools.compress(export, out, table=name, without_labels=True, **options)
        found = report.compressed
        assert found is not None
        assert (found.keys, found.dim, found.rows) == (COUNT, DIM, sum(code.sizes))
        assert (found.bytes_before, found.bytes) == (COUNT * DIM * 4, sum(code.sizes) * DIM * 4)
        assert found.weighed_by == "nothing"
        assert [v.shape for v in read_model(out).variables.values()].count((COUNT, DIM)) == 1
        fitted = fit(code, np.arange(COUNT), rows(number)).rows
        places = code.places(np.arange(COUNT))
        new = sum(fitted[place + first] for place, first in zip(places, code.offsets, strict=True))
        change = (new - rows(number))[ids] @ weights_of(export)[number]
        expected = score(export) + (change if ids.ndim == 1 else change.mean(1))
        np.testing.assert_allclose(score(out), expected, rtol=1e-4, atol=1e-4)
        graph_tools.optimize(out, tmp_path / f"{name}_fused", precision="fp32", accept_weak_proof=True)
        ops = {node.op for node in read_model(tmp_path / f"{name}_fused").graph}
        assert not {op for op in ops if "Gather" in op or "Shift" in op or "Floor" in op or "Segment" in op}
        np.testing.assert_allclose(score(tmp_path / f"{name}_fused"), score(out), rtol=1e-4, atol=1e-4)


def test_rows_become_narrow(export: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    widths = [RowWidth(6, 50), RowWidth(2)]
    report = graph_tools.compress(export, out, table="item_emb", dims=widths, without_labels=True)
    found = report.compressed
    assert found is not None
    assert (found.method, found.parts, found.weighed_by) == ("dims", [50, COUNT - 50], "norm")
    assert found.bytes == (50 * 6 + (COUNT - 50) * 2) * 4 + COUNT * 4
    assert 0 < found.error < 0.2
    whole = tmp_path / "whole"
    graph_tools.compress(export, whole, table="item_emb", dims=[RowWidth(DIM, 50), RowWidth(7)], without_labels=True)
    assert np.abs(score(out) - score(export)).max() > np.abs(score(whole) - score(export)).max()
    np.testing.assert_allclose(score(whole), score(export), rtol=0.1, atol=0.1)
    graph_tools.optimize(out, tmp_path / "fused", precision="fp32", accept_weak_proof=True)
    ops = Counter(node.op for node in read_model(tmp_path / "fused").graph)
    assert not [op for op in ops if "Gather" in op]
    if "keras" in str(export.parent):
        # The weights of the dense layer have turned vectors back: the model has the nodes that it had.
        graph_tools.optimize(export, tmp_path / "before", precision="fp32", accept_weak_proof=True)
        before = Counter(node.op for node in read_model(tmp_path / "before").graph)
        assert ops["RecDenseTower"] == before["RecDenseTower"]
        assert ops["MatMul"] == before["MatMul"] == 0
    np.testing.assert_allclose(score(tmp_path / "fused"), score(out), rtol=1e-4, atol=1e-4)


def test_names_and_reasons_are_told(export: Path) -> None:
    with pytest.raises(
        UsageError, match=r"--table other: no table of this name, expected one of: item_emb\S*, user_emb"
    ):
        graph_tools.compress(export, None, table="other", bits=12, blocks=2, dry_run=True)
    with pytest.raises(UsageError, match="600 keys, expected fewer"):
        graph_tools.compress(export, None, table="user_emb", hashes=(2, 300), dry_run=True)


def test_a_variable_that_something_else_reads_is_refused(tmp_path: Path) -> None:
    """As in models that score all items with the rows of their table."""
    module = tf.Module()
    module.held = tf.Variable(rows(0), name="item_emb")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="user")])
    def serve(user: Any) -> dict[str, Any]:
        return {"scores": tf.matmul(tf.gather(module.held, user), module.held, transpose_b=True)}

    tf.saved_model.save(module, str(tmp_path / "tied"), signatures=serve)
    with pytest.raises(UsageError, match=r"--table item_emb: '.*' \(MatMul\) reads all of it, expected a variable"):
        graph_tools.compress(tmp_path / "tied", None, table="item_emb", bits=12, blocks=2, dry_run=True)


def test_rows_of_half_precision_keep_their_type(tmp_path: Path) -> None:
    module = tf.Module()
    module.held = tf.Variable(tf.cast(rows(0), tf.bfloat16), name="item_emb")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="user")])
    def serve(user: Any) -> dict[str, Any]:
        return {"rows": tf.gather(module.held, user)}

    tf.saved_model.save(module, str(tmp_path / "half"), signatures=serve)
    for name, options in (("code", {"bits": 12, "blocks": 2}), ("dims", {"dims": [RowWidth(8, 300), RowWidth(7)]})):
        graph_tools.compress(tmp_path / "half", tmp_path / name, table="item_emb", without_labels=True, **options)
        served = tf.saved_model.load(str(tmp_path / name)).signatures["serving_default"]
        found = served(user=tf.constant(USERS))["rows"]
        assert found.dtype == tf.bfloat16
    np.testing.assert_allclose(tf.cast(found, tf.float32), rows(0)[USERS], atol=0.05)
