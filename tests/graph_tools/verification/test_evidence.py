# SPDX-License-Identifier: Apache-2.0
"""Test that a weak proof is reported, and that it permits nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools import cut, fuse, verify
from graph_tools.errors import WeakProofError
from graph_tools.options import CutOptions
from helpers.graph_tools.cut_models import run

ABSENT = 1 << 40


def build_far_ids(path: Path, refuse: bool = False) -> Path:
    """Export ids int64 [batch] and x float32 [batch, 4] -> y: rows of a table by ids that begin at 2^40.

    Other ids are given a row of their own; with `refuse` they are refused.
    """
    import tensorflow as tf

    rng = np.random.default_rng(0)

    class Far(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = tf.Variable(rng.normal(size=(2000, 16)).astype(np.float32))
            self.kernel = tf.Variable(rng.normal(size=(20, 64)).astype(np.float32) * 0.05)
            self.last = tf.Variable(rng.normal(size=(64, 1)).astype(np.float32) * 0.1)

        @tf.function(
            input_signature=[
                tf.TensorSpec([None], tf.int64, name="ids"),
                tf.TensorSpec([None, 4], tf.float32, name="x"),
            ]
        )
        def serve(self, ids: Any, x: Any) -> Any:
            numbers = ids - ABSENT
            if not refuse:
                numbers = tf.where((numbers < 0) | (numbers > 1999), tf.zeros_like(numbers), numbers)
            hidden = tf.nn.relu(tf.matmul(tf.concat([tf.gather(self.table, numbers), x], 1), self.kernel))
            return {"y": tf.sigmoid(tf.matmul(hidden, self.last))}

    module = Far()
    tf.saved_model.save(module, str(path), signatures=module.serve)
    return path


def recorded(path: Path, rows: int) -> Path:
    rng = np.random.default_rng(1)
    np.savez(path, ids=ABSENT + rng.integers(0, 2000, rows), x=rng.normal(size=(rows, 4)).astype(np.float32))
    return path


def test_a_table_that_nothing_hits_makes_a_proof_weak(tmp_path: Path) -> None:
    source = build_far_ids(tmp_path / "in")
    narrow = CutOptions(embedding_dtype="int4")
    with pytest.raises(WeakProofError, match=r"the proof is weak: table '.*': 1 of 2,000 rows looked up") as raised:
        cut(source, tmp_path / "out", options=narrow)
    assert not (tmp_path / "out").exists()
    assert raised.value.report["verification"]["passed"]
    assert cut(source, tmp_path / "accepted", options=narrow, accept_weak_proof=True).verification is not None
    proved = cut(source, tmp_path / "out", options=narrow, requests=[recorded(tmp_path / "r.npz", 200)])
    assert proved.verification is not None
    assert not proved.verification.weak


def test_few_rows_permit_no_bf16(tmp_path: Path) -> None:
    source = build_far_ids(tmp_path / "in", refuse=True)
    five = recorded(tmp_path / "five.npz", 5)
    with pytest.raises(WeakProofError, match="1 request with 5 rows answered, expected 8 requests or 32 rows"):
        fuse(source, tmp_path / "out", requests=[five])
    report = fuse(source, tmp_path / "out", requests=[five], accept_weak_proof=True)
    assert report.precision is not None
    assert report.precision.permitted == "fp32"
    assert "the proof is too weak to permit bf16" in report.precision.reason
    many = fuse(source, tmp_path / "proved", requests=[recorded(tmp_path / "many.npz", 500)])
    assert many.verification is not None
    assert not many.verification.weak


def test_an_input_that_never_changes_is_named(tmp_path: Path) -> None:
    source = build_far_ids(tmp_path / "in")
    np.savez(tmp_path / "same.npz", ids=ABSENT + np.arange(100), x=np.ones((100, 4), np.float32))
    report = verify(source, source, requests=[tmp_path / "same.npz"], samples=0)
    assert report.passed
    assert report.weak == ["signature 'serving_default', input 'x': one value in all requests, expected several"]
    found = run("verify", source, source, "--requests", tmp_path / "same.npz", "--samples", 0)
    assert found.code == 1
    assert "weak proof: signature 'serving_default', input 'x': one value in all requests" in found.out
    assert (
        run("verify", source, source, "--requests", tmp_path / "same.npz", "--samples", 0, "--accept-weak-proof").code
        == 0
    )


def test_rounded_rows_have_a_limit(tmp_path: Path) -> None:
    """Rows whose scores explode when they are rounded fail without a tolerance, and pass with one that allows it."""
    import tensorflow as tf

    rng = np.random.default_rng(0)

    class Steep(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = tf.Variable(rng.normal(size=(500, 16)).astype(np.float32))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="ids")])
        def serve(self, ids: Any) -> Any:
            return {"y": tf.sigmoid(100.0 * tf.reduce_sum(tf.gather(self.table, ids), 1))}

    module = Steep()
    tf.saved_model.save(module, str(tmp_path / "in"), signatures=module.serve)
    narrow = CutOptions(embedding_dtype="int4")
    with pytest.raises(Exception, match="elements differ"):
        cut(tmp_path / "in", tmp_path / "out", options=narrow)
    report = cut(tmp_path / "in", tmp_path / "out", options=narrow, tolerance="1")
    assert report.verification is not None
    assert report.verification.passed


def test_rows_that_lose_most_are_asked_for(tmp_path: Path) -> None:
    """Of a large table, some rows are rounded far worse than others: they are among what is asked."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20_000, 16)).astype(np.float32) * 1e-4
    # A row with one large number: the others lose most of what they are.
    rows[[777, 15_001], :] *= 1000
    rows[[777, 15_001], 0] = 3

    class Rare(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = tf.Variable(rows)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="ids")])
        def serve(self, ids: Any) -> Any:
            return {"y": tf.sigmoid(tf.reduce_sum(tf.gather(self.table, ids), 1))}

    module = Rare()
    tf.saved_model.save(module, str(tmp_path / "in"), signatures=module.serve)
    report = cut(
        tmp_path / "in", tmp_path / "out", options=CutOptions(embedding_dtype="int4"), samples=3, tolerance="1"
    )
    assert report.verification is not None
    output = report.verification.outputs[0]
    assert output.max_abs_difference > 1e-2
    assert "rows that lose most" in output.worst.request
