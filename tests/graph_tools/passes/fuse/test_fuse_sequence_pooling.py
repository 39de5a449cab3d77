# SPDX-License-Identifier: Apache-2.0
"""Masked sums, means and maxima over sequences become one node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.passes.fuse.fuse_sequence_pooling import FuseSequencePooling
from graph_tools.verbs.fuse import fuse as whole_fuse
from helpers.graph_tools.interaction_checks import Fused, floats, fuse, requests
from helpers.models.idiom_models import export_function
from helpers.system.programs import LIBRARY

OP = "RecSequencePooling"
LENGTH, DIM = 6, 5


def ids(rows: int) -> np.ndarray:
    """Make ids with padding, the second sequence being all of it."""
    made = np.random.default_rng(rows).integers(0, 3, (rows, LENGTH)).astype(np.int32)
    made[1:2] = 0
    return made


def counts(rows: int) -> np.ndarray:
    """Make lengths, of which one is 0, one negative, and some are beyond the positions."""
    made = np.random.default_rng(rows).integers(0, LENGTH + 3, (rows, 1)).astype(np.int32)
    made[1:2] = 0
    made[2:3] = -2
    made[3:4] = np.iinfo(np.int32).min
    return made


def numbers(rows: int) -> np.ndarray:
    return ids(rows).astype(np.float32)


X = (LENGTH, DIM)


def deepctr(combiner: str) -> Callable[[Any, Any], Any]:
    """Write SequencePoolingLayer with a mask."""

    def function(x: Any, ids: Any) -> Any:
        mask = tf.cast(tf.not_equal(ids, 0), tf.float32)
        length = tf.reduce_sum(mask, axis=-1, keepdims=True)
        return pool(x, tf.tile(tf.expand_dims(mask, 2), [1, 1, DIM]), length, combiner)

    return function


def deepctr_lengths(combiner: str) -> Callable[[Any, Any], Any]:
    """Write SequencePoolingLayer with lengths [rows, 1]."""

    def function(x: Any, lengths: Any) -> Any:
        mask = tf.transpose(tf.sequence_mask(lengths, LENGTH, dtype=tf.float32), (0, 2, 1))
        return pool(x, tf.tile(mask, [1, 1, DIM]), lengths, combiner)

    return function


def pool(x: Any, mask: Any, length: Any, combiner: str) -> Any:
    if combiner == "max":
        return tf.reduce_max(x - (1 - mask) * 1e9, 1, keepdims=True)
    hist = tf.reduce_sum(x * mask, 1, keepdims=False)
    if combiner == "mean":
        hist = tf.math.divide(hist, tf.cast(length, tf.float32) + tf.constant(1e-8, tf.float32))
    return tf.expand_dims(hist, axis=1)


def keras(x: Any, ids: Any) -> Any:
    """Write GlobalAveragePooling1D."""
    mask = tf.expand_dims(tf.cast(ids > 0, tf.float32), 2)
    return tf.reduce_sum(x * mask, 1) / tf.maximum(tf.reduce_sum(mask, 1), 1.0)


def no_nan(x: Any, ids: Any) -> Any:
    mask = tf.cast(ids > 0, tf.float32)
    return tf.math.divide_no_nan(tf.reduce_sum(mask[:, :, None] * x, 1), tf.reduce_sum(mask, 1, keepdims=True))


def selected(x: Any, ids: Any) -> Any:
    return tf.reduce_max(tf.where((ids > 0)[:, :, None], x, -1e3), 1)


def run(tmp_path: Path, function: Callable[..., Any], **more: Any) -> Fused:
    return fuse(tmp_path, function, requests(x=X, **more), FuseSequencePooling())


MASKED: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "deepctr sum": (deepctr("sum"), {"combiner": b"sum", "keep_dims": True}),
    "deepctr mean": (deepctr("mean"), {"combiner": b"mean", "keep_dims": True, "by_length": None}),
    "deepctr max": (deepctr("max"), {"combiner": b"max", "keep_dims": True, "shift": True, "padding": -1e9}),
    "keras": (keras, {"combiner": b"mean", "least": 1.0, "keep_dims": False}),
    "divide_no_nan": (no_nan, {"combiner": b"mean", "keep_dims": False}),
    "selected": (selected, {"combiner": b"max", "shift": None, "padding": -1e3}),
}


@pytest.mark.parametrize("spelling", MASKED)
def test_pooling_by_masks_becomes_one_node(spelling: str, tmp_path: Path) -> None:
    function, attributes = MASKED[spelling]
    found = run(tmp_path, function, ids=ids)
    assert found.ops[OP] == 1
    # The mask's own truth values are taken, and neither cast nor repeated.
    assert set(found.ops) <= {OP, "NotEqual", "Greater"}
    assert found.attributes(OP, "Tmask") == [tf.bool]
    assert found.attributes(OP, *attributes) == pytest.approx(list(attributes.values()))
    assert not found.reasons


@pytest.mark.parametrize("spelling", MASKED)
def test_nan_and_infinities_are_pooled_as_tensorflow_pools_them(spelling: str, tmp_path: Path) -> None:
    function, attributes = MASKED[spelling]
    is_max = attributes["combiner"] == b"max"

    def strange(rows: int) -> np.ndarray:
        made: np.ndarray = floats(rows, *X, seed=rows)
        # What is at padding counts in a maximum; sums and means do not read it.
        for i, (row, position) in enumerate(np.argwhere((ids(rows) != 0) | is_max)):
            made[row, position, i % DIM] = (np.nan, np.inf, -np.inf)[i % 3]
        if is_max:
            made[:1, :, DIM - 1] = -np.inf
        return made

    assert fuse(tmp_path, function, requests(x=strange, ids=ids), FuseSequencePooling()).ops[OP] == 1


@pytest.mark.parametrize("combiner", ["sum", "mean", "max"])
def test_pooling_by_lengths_becomes_one_node(combiner: str, tmp_path: Path) -> None:
    found = run(tmp_path, deepctr_lengths(combiner), lengths=counts)
    assert found.ops == {OP: 1}
    assert found.attributes(OP, "Tmask", "by_length") == [tf.int32, combiner == "mean" or None]


def test_mean_by_weights_that_may_cancel_keeps_its_division(tmp_path: Path) -> None:
    def function(x: Any, mask: Any) -> Any:
        return tf.math.divide_no_nan(tf.reduce_sum(x * mask[:, :, None], 1), tf.reduce_sum(mask, 1, keepdims=True))

    def weights(rows: int) -> np.ndarray:
        made = numbers(rows) - 1
        made[:1] = [1, -1, 0, 0, 2, -2]
        return made

    found = run(tmp_path, function, mask=weights)
    assert found.attributes(OP, "combiner") == [b"sum"]
    assert found.ops["DivNoNan"] == 1


def test_masks_from_clients_become_inputs(tmp_path: Path) -> None:
    def function(x: Any, mask: Any) -> Any:
        return tf.reduce_sum(x * mask[:, :, None], 1) / (tf.reduce_sum(mask, 1, keepdims=True) + 0.5)

    found = run(tmp_path, function, mask=numbers)
    assert found.ops == {OP: 1}
    assert found.attributes(OP, "Tmask", "epsilon") == [tf.float32, 0.5]


def test_sequences_of_single_numbers_are_pooled(tmp_path: Path) -> None:
    def function(x: Any, ids: Any) -> Any:
        mask = tf.cast(tf.not_equal(ids, 0), tf.float32)
        return tf.reduce_sum(mask[:, :, None] * x[:, :, :1], 1) / (tf.reduce_sum(mask, 1, keepdims=True) + 1e-8)

    found = run(tmp_path, function, ids=ids)
    assert found.ops[OP] == 1
    assert found.attributes(OP, "combiner") == [b"mean"]


def test_mask_of_two_sequences_is_shared(tmp_path: Path) -> None:
    def function(x: Any, ids: Any) -> Any:
        return tf.concat([deepctr("mean")(x, ids), deepctr("mean")(2.0 * x, ids)], 2)

    assert run(tmp_path, function, ids=ids).ops == {OP: 2, "NotEqual": 1, "Mul": 1, "ConcatV2": 1}


def test_mean_by_another_number_keeps_its_division(tmp_path: Path) -> None:
    def function(x: Any, ids: Any) -> Any:
        mask = tf.cast(ids > 0, tf.float32)
        return tf.reduce_sum(x * mask[:, :, None], 1) / (2.0 + tf.reduce_sum(mask[:, 1:], 1, keepdims=True))

    found = run(tmp_path, function, ids=ids)
    assert found.attributes(OP, "combiner") == [b"sum"]
    assert found.ops["RealDiv"] == 1


@pytest.mark.parametrize("length", [LENGTH, None])
def test_masks_of_histories_of_any_length_become_inputs(tmp_path: Path, length: int | None) -> None:
    table = tf.Variable(floats(50, DIM))

    def function(ids: Any) -> dict[str, Any]:
        rows, mask = tf.gather(table, ids), tf.cast(ids > 0, tf.float32)[..., None]
        total = tf.reduce_sum(rows * mask, 1)
        return {"sum": total, "mean": total / (tf.reduce_sum(mask, 1) + 1e-8)}

    export_function(tmp_path / "source", function, [tf.TensorSpec([None, length], tf.int64, name="ids")], table=table)
    report = whole_fuse(tmp_path / "source", tmp_path / "fused", op_library=LIBRARY, precision="fp32")
    (found,) = [one for one in report.fused if one.name == FuseSequencePooling.name]
    assert found.applied == 2
    assert report.verification is not None
    assert report.verification.passed


def test_mask_of_another_length_is_not_fused(tmp_path: Path) -> None:
    """A mask of one position counts for all where sizes are not known before."""
    table = tf.Variable(floats(50, DIM))
    specs = [tf.TensorSpec([None, None], tf.int64, name=name) for name in ("ids", "others")]

    def function(ids: Any, others: Any) -> dict[str, Any]:
        return {"sum": tf.reduce_sum(tf.gather(table, ids) * tf.cast(others > 0, tf.float32)[..., None], 1)}

    export_function(tmp_path / "source", function, specs, table=table)
    report = whole_fuse(tmp_path / "source", None, op_library=LIBRARY, precision="fp32", dry_run=True)
    (found,) = [one for one in report.fused if one.name == FuseSequencePooling.name]
    assert not found.applied
    ((_, why),) = found.refused
    assert "[?, ?, 1] is not known to have one element for each position of" in why


ALONE: dict[str, Callable[..., Any]] = {
    "gates over experts": lambda x, ids: tf.reduce_sum(x * tf.nn.softmax(x[:, :, 0])[:, :, None], 1),
    "another axis": lambda x, ids: tf.reduce_sum(x * tf.cast(ids > 0, tf.float32)[:, :, None], 2),
    "a mask of elements": lambda x, ids: tf.reduce_sum(x * tf.cast(x > 0, tf.float32), 1),
    "a mask of rows": lambda x, ids: tf.reduce_sum(x * tf.cast(ids[:, :1] > 0, tf.float32)[:, :, None], 1),
    "no mask": lambda x, ids: tf.reduce_sum(x, 1) / 3.0,
}


@pytest.mark.parametrize("which", ALONE)
def test_graphs_without_the_pattern_are_unchanged(which: str, tmp_path: Path) -> None:
    found = run(tmp_path, ALONE[which], ids=ids)
    assert OP not in found.ops
    assert not found.reasons
