# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et


def test_remembers_in_training_only() -> None:
    offsets = et.StreamOffsets(partitions=3)
    x = tf.ones([2, 2])
    np.testing.assert_array_equal(offsets(x, tf.constant([[1, 5]]), training=True), x)
    offsets(x, tf.constant([[1, 9]]), training=False)
    offsets(x, tf.constant([[1, 9]]))
    # A batch of several partitions, one of which is older than what was learned.
    offsets(x, tf.constant([[2, 4], [1, 3], [2, 6]]), training=True)
    assert [offsets.next(i) for i in range(3)] == [0, 5, 6]


def test_prefetched_batches_do_not_count() -> None:
    offsets = et.StreamOffsets()
    batches = offsets.number(tf.data.Dataset.range(100).map(lambda i: {"x": i})).prefetch(50)
    step = tf.function(lambda batch: offsets(batch["x"], batch["stream_offset"], training=True))
    for batch, _ in zip(batches, range(7), strict=False):
        step(batch)
    assert offsets.next(0) == 7
    again = next(iter(offsets.number(tf.data.Dataset.range(100).map(lambda i: {"x": i}).skip(offsets.next(0)))))
    assert int(again["x"]) == 7
    np.testing.assert_array_equal(again["stream_offset"], [[0, 8]])


def test_is_of_the_same_instant_as_the_checkpoint(tmp_path: Path) -> None:
    offsets = et.StreamOffsets()
    offsets(tf.ones([1]), tf.constant([[0, 3]]), training=True)
    checkpoints = et.Checkpoints(tmp_path, offsets=offsets)
    checkpoints.save(wait=False)
    offsets(tf.ones([1]), tf.constant([[0, 4]]), training=True)
    checkpoints.restore()
    assert offsets.next(0) == 3


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="partitions is 0"):
        et.StreamOffsets(0)
    offsets = et.StreamOffsets(partitions=2, name="stream")
    with pytest.raises(ValueError, match=r"'stream': elements begin with .*Tensor, expected a dict"):
        offsets.number(tf.data.Dataset.range(3))
    with pytest.raises(tf.errors.InvalidArgumentError, match="indices"):
        offsets(tf.ones([1]), tf.constant([[2, 5]]), training=True)
