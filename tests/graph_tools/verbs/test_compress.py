# SPDX-License-Identifier: Apache-2.0
"""Tables become sums of rows of a code, and nothing is written whose AUC is not known or falls too far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
import graph_tools
from graph_tools.cli.compress import render_compress
from graph_tools.errors import ConversionError, UsageError, VerificationError
from graph_tools.readers import read_model
from graph_tools.tables.row_codes import BinaryCode
from graph_tools.verbs.compress import replace_table
from graph_tools.verbs.compressible import find_table
from graph_tools.verification.ranking import auc

COUNT, DIM, CODE = 2000, 4, BinaryCode(16, 2, "skip")
USERS = np.random.default_rng(0).integers(1, 1 << 62, COUNT)


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two users' tables, with rows that are nearly sums of rows of the code."""
    random, folder = np.random.default_rng(1), tmp_path_factory.mktemp("compress")
    rows = random.normal(size=(sum(CODE.sizes), DIM)).astype(np.float32)
    places = [place + offset for place, offset in zip(CODE.places(USERS), CODE.offsets, strict=True)]
    sums = np.asarray(sum(rows[place] for place in places), np.float32)
    module = tf.Module()
    module.user, module.word = (et.HashEmbeddingModule(DIM, name=name) for name in ("user_id", "word"))
    module.user(tf.constant([0], tf.int64), training=False)
    module.word(tf.constant([""]), training=False)
    module.user.table.insert(USERS, sums + random.normal(0, 0.05, sums.shape).astype(np.float32))
    words = [f"word {number}" for number in range(600)]
    module.word.table.insert(words, random.normal(size=(600, DIM)).astype(np.float32))
    kernel = tf.constant(random.normal(size=(DIM, 1)).astype(np.float32))

    def serve(features: dict[str, Any]) -> dict[str, Any]:
        users, word = module.user(features["user"], training=False), module.word(features["word"], training=False)
        return {"score": tf.matmul(users, kernel) + 0.1 * tf.matmul(word, kernel)}

    inputs = {"user": tf.TensorSpec([None], tf.int64), "word": tf.TensorSpec([None], tf.string)}
    et.export(module, folder / "export", inputs=inputs, function=serve)
    user, word = random.choice(USERS, 3000), random.choice(words, 3000)
    scores = score(folder / "export", user, word)
    labels = (random.random(3000) < 1 / (1 + np.exp(-scores))).astype(np.int64)
    np.savez(folder / "labeled.npz", user=user, word=word.astype("S"), labels=labels)
    np.savez(folder / "plain.npz", user=user, word=word.astype("S"))
    return folder / "export"


def score(model: Path, user: Any, word: Any) -> Any:
    served = tf.saved_model.load(str(model)).signatures["serving_default"]
    return served(user=tf.constant(user), word=tf.constant(word))["score"].numpy()[:, 0]


def compress(export: Path, target: Path | None, **options: Any) -> Any:
    code = {} if {"hashes", "quotient_remainder"} & set(options) else {"bits": 16, "blocks": 2, "cut": "skip"}
    given = {"table": "user_id", **code, **options}
    return graph_tools.compress(export, target, **given)


def test_rows_become_sums_and_the_auc_is_measured(export: Path, tmp_path: Path) -> None:
    requests = export.parent / "labeled.npz"
    report = compress(export, tmp_path / "out", requests=[requests])
    found = report.compressed
    assert (found.keys, found.rows, found.bytes) == (COUNT, 512, 512 * DIM * 4)
    assert found.bytes_before == COUNT * (8 + DIM * 4)
    assert 0 < found.error < 0.01
    with np.load(requests) as file:
        user, word, labels = file["user"], file["word"], file["labels"]
    after = score(tmp_path / "out", user, word)
    (measured,) = report.auc
    assert measured.after == pytest.approx(auc(labels, after), abs=1e-6)
    assert measured.before == pytest.approx(auc(labels, score(export, user, word)), abs=1e-6)
    assert abs(measured.before - measured.after) < 0.003
    rows = np.asarray(read_model(export).sparse_tables["user_id"].parts[0].rows.read())
    assert np.abs(after - score(export, user, word)).max() < 0.2 * np.abs(rows).max()
    assert report.to_json()["lossy"]
    assert "user_id" not in read_model(tmp_path / "out").sparse_tables
    graph_tools.optimize(tmp_path / "out", tmp_path / "fused", precision="fp32", accept_weak_proof=True)
    ops = [node.op for node in read_model(tmp_path / "fused").graph]
    assert "RecEmbeddingGroup" in ops
    assert not {op for op in ops if "Shift" in op or "Gather" in op}


def test_string_keys_are_compressed(export: Path, tmp_path: Path) -> None:
    requests = [export.parent / "labeled.npz"]
    report = compress(export, tmp_path / "out", table="word", bits=14, max_auc_loss=1.0, requests=requests)
    assert (report.compressed.keys, report.compressed.rows) == (600, 256)
    assert report.compressed.error < 1


@pytest.mark.parametrize(
    ("table", "options"), [("user_id", {"hashes": (2, 300)}), ("word", {"quotient_remainder": (20, 30)})]
)
def test_other_codes_are_fitted_and_fused(export: Path, tmp_path: Path, table: str, options: Any) -> None:
    labeled = [export.parent / "labeled.npz"]
    report = compress(export, tmp_path / "out", table=table, max_auc_loss=1.0, requests=labeled, **options)
    found = report.compressed
    assert (found.method, sum(found.parts)) == (next(iter(options)), found.rows)
    graph_tools.optimize(tmp_path / "out", tmp_path / "fused", precision="fp32", accept_weak_proof=True)
    ops = {node.op for node in read_model(tmp_path / "fused").graph}
    assert not {op for op in ops if "Shift" in op or "Gather" in op or "Floor" in op}
    words = ["word 1", "word 599", "another"]
    expected, found = (score(tmp_path / name, USERS[:3], words) for name in ("out", "fused"))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_forecast_writes_nothing(export: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    report = compress(export, None, dry_run=True)
    assert report.target.bytes < report.source.bytes
    assert report.auc == []
    render_compress(report.to_json(), Console())
    printed = capsys.readouterr().out
    assert "2,000 keys" in printed
    assert "AUC unknown" in printed
    assert not list(tmp_path.iterdir())


def test_results_without_labels_are_refused_unless_permitted(export: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none given, expected recorded requests with labels"):
        compress(export, tmp_path / "out")
    requests = [export.parent / "plain.npz"]
    with pytest.raises(VerificationError, match="no recorded request has labels"):
        compress(export, tmp_path / "out", requests=requests)
    assert not list(tmp_path.iterdir())
    report = compress(export, tmp_path / "out", requests=requests, without_labels=True)
    assert report.auc == []
    assert (tmp_path / "out" / "saved_model.pb").is_file()


def test_a_result_that_loses_too_much_is_not_written(export: Path, tmp_path: Path) -> None:
    requests = [export.parent / "labeled.npz"]
    with pytest.raises(VerificationError, match=r"loses 0\.\d+ of its AUC of 0\.\d+, expected at most 0.003") as error:
        compress(export, tmp_path / "out", bits=4, requests=requests)
    assert error.value.report["auc"][0]["after"] < error.value.report["auc"][0]["before"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "item"}, "--table item: no table of this name, expected one of: user_id, word"),
        ({"bits": 22}, "4096 rows of the code for 2000 keys"),
        ({"blocks": 17}, "--blocks 17"),
        ({"bits": 16, "hashes": (2, 9)}, "expected exactly one of these"),
        ({"quotient_remainder": (1000, 1000)}, "2000 rows of the code for 2000 keys"),
    ],
)
def test_wrong_options_are_named(export: Path, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compress(export, None, dry_run=True, **options)


def test_a_fit_that_needs_too_much_memory_is_refused(export: Path) -> None:
    model = read_model(export)
    found = find_table(model, "user_id")
    assert found is not None
    with pytest.raises(ConversionError, match="a fit needs 160000 bytes"):
        replace_table(model, *found, CODE, 100_000)
