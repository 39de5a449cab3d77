# SPDX-License-Identifier: Apache-2.0
"""Test that a verification without scores does not pass, and that every verification ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools import verify
from graph_tools.errors import UnreadableError


def offset_model(path: Path, value: float) -> Path:
    """Export ids int64 [batch] -> rows of a table of which every element is `value`, by ids that begin at a billion."""
    import tensorflow as tf

    class Offset(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = tf.Variable(np.full((100, 8), value, np.float32))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="ids")])
        def serve(self, ids: Any) -> Any:
            return {"rows": tf.gather(self.table, ids - 1_000_000_007)}

    module = Offset()
    tf.saved_model.save(module, str(path), signatures=module.serve)
    return path


def test_empty_batches_alone_are_not_a_proof(tmp_path: Path) -> None:
    report = verify(offset_model(tmp_path / "one", 1.0), offset_model(tmp_path / "two", 2.0))
    assert not report.passed
    assert "none of 32 requests was answered" in report.reasons[0]
    # What TensorFlow says of them, and what helps.
    assert "INVALID_ARGUMENT: indices" in report.reasons[0]
    assert report.reasons[0].endswith("name recorded requests with --requests")
    assert report.rows == 0


def test_recorded_requests_find_the_difference(tmp_path: Path) -> None:
    np.savez(tmp_path / "recorded.npz", ids=np.arange(1_000_000_007, 1_000_000_017))
    models = offset_model(tmp_path / "one", 1.0), offset_model(tmp_path / "two", 2.0)
    report = verify(*models, requests=[tmp_path / "recorded.npz"])
    assert report.outputs[0].beyond == 80
    same = verify(models[0], offset_model(tmp_path / "three", 1.0), requests=[tmp_path / "recorded.npz"])
    assert same.passed
    assert same.rows == 10


def test_lengths_stay_small(tmp_path: Path) -> None:
    import tensorflow as tf

    class Repeated(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="lengths")])
        def serve(self, lengths: Any) -> Any:
            return {"mask": tf.sequence_mask(lengths), "ends": tf.range(tf.reduce_sum(lengths))}

    module = Repeated()
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.serve)
    assert verify(tmp_path / "model", tmp_path / "model").passed


def test_labels_of_another_length_are_refused(tmp_path: Path) -> None:
    model = offset_model(tmp_path / "model", 1.0)
    np.savez(tmp_path / "bad.npz", ids=np.arange(1_000_000_007, 1_000_000_017), labels=np.ones(7))
    with pytest.raises(UnreadableError, match=r"bad\.npz: 7 labels, expected 10, one for each row"):
        verify(model, model, requests=[tmp_path / "bad.npz"])
