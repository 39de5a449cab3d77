# SPDX-License-Identifier: Apache-2.0
"""Test that a trainer publishes arrays by the names of its export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools import Publisher
from graph_tools.errors import ConversionError, UsageError
from graph_tools.readers.lineage import find_position
from graph_tools.store.timeline import TimelineReader
from helpers.models.idiom_models import export_function, table


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tensorflow as tf

    items, dense = tf.Variable(table(20, 3), name="items"), tf.Variable(table(3, 2), name="dense")
    bias = tf.Variable(np.ones(2, np.float32), name="bias")

    def serve(ids: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"score": tf.matmul(tf.gather(items, ids), dense) + bias}

    held = {"items": items, "dense": dense, "bias": bias, "slot": tf.Variable(table(20, 3), name="slot")}
    path = tmp_path_factory.mktemp("publisher") / "export"
    return export_function(path, serve, [tf.TensorSpec([None], tf.int64, name="ids")], **held)


def test_arrays_in_any_order_become_an_epoch(export: Path, tmp_path: Path) -> None:
    publisher = Publisher(tmp_path, export, "a test")
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    epoch = publisher.publish({"items": ([7, 3], rows)}, {"bias": [1, 2]}, streams={"clicks/0": 9}, event_time=1.5)
    assert epoch == publisher.epoch == 1
    segment = TimelineReader(tmp_path, find_position(export)).next()
    assert segment is not None
    (changes,) = segment.delta.tables
    assert (changes.name, changes.key_kind) == ("items", "row_number")
    np.testing.assert_array_equal(changes.changed.read(), [3, 7])
    np.testing.assert_array_equal(changes.rows.read(), rows[::-1])
    np.testing.assert_array_equal(segment.delta.variables["bias"].read(), [1, 2])
    assert (segment.delta.streams, segment.header.event_time) == ({"clicks/0": 9}, 1_500_000)
    assert Publisher(tmp_path, export).publish() == 2


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            {"rows": {"item": ([1], [[1, 2, 3]])}},
            "'item': not what .* needs, expected one of dense, items",
        ),
        (
            {"rows": {"slot": ([1], [[1, 2, 3]])}},
            "'slot': not what .* needs, expected one of dense, items",
        ),
        ({"rows": {"bias": ([1], [[1]])}}, "'bias': not what .* needs, expected one of dense, items"),
        (
            {"rows": {"items": ([1, 2], [[1, 2, 3]])}},
            r"'items': \[1, 3\] elements for 2 keys, expected \[2, 3\]",
        ),
        ({"rows": {"items": ([1, 1], np.ones((2, 3)))}}, "keys of 'items': 1 occurs twice"),
        ({"rows": {"items": (["a"], np.ones((1, 3)))}}, "keys of 'items': not all are integers"),
        ({"variables": {"bias": [1, 2, 3]}}, r"variable 'bias': shape \[3\], expected \[2\]"),
        ({"streams": {"clicks/0": -1}}, "stream 'clicks/0': position -1, expected an integer"),
        ({"event_time": 1.8e12}, "event_time: 1800000000000 is more than a day in the future"),
        ({"variables": {"b": [1, 2]}}, "'b': not what .* needs, expected one of bias, dense, items"),
    ],
)
def test_what_does_not_fit_the_export_is_refused(
    export: Path, tmp_path: Path, given: dict[str, Any], reason: str
) -> None:
    publisher = Publisher(tmp_path, export)
    with pytest.raises(UsageError, match=reason):
        publisher.publish(**given)
    with pytest.raises(ConversionError, match="table 'items': nan in the row of key 4"):
        publisher.publish({"items": ([4], [[0, np.nan, 0]])})
    assert (publisher.epoch, publisher.publish()) == (0, 1)
