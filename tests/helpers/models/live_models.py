# SPDX-License-Identifier: Apache-2.0
"""A live model whose answers show their epoch: every row and the dense layer contain its number."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graph_tools import optimize
from graph_tools.store.delta import Delta, TableDelta, no_keys
from graph_tools.store.lineage import write_lineage
from graph_tools.store.segment import Segment
from graph_tools.store.timeline import Position
from graph_tools.store.timeline_writer import TimelineWriter
from graph_tools.tensors import ArrayTensor
from helpers.models.idiom_models import export_function

ROWS, DIM = 50, 4
START = Position.start(bytes(range(16)))


def export_live(folder: Path) -> Path:
    """Write the artifact of a model with the input `a` (row numbers) and the outputs `rows` [n, DIM] and `y` [n, 2].

    At epoch e, rows are e and y is (DIM + 1) · e.
    """
    import tensorflow as tf

    table = tf.Variable(np.zeros((ROWS, DIM), np.float32), name="table")
    kernel = tf.Variable(np.ones((DIM, 2), np.float32), name="kernel")
    bias = tf.Variable(np.zeros(2, np.float32), name="bias")

    def serve(a: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = tf.gather(table, a)
        return {"rows": rows, "y": tf.nn.relu(tf.matmul(rows, kernel) + bias)}

    specs = [tf.TensorSpec([None], tf.int64, name="a")]
    source = export_function(folder / "export", serve, specs, table=table, kernel=kernel, bias=bias)
    write_lineage(source, START)
    optimize(source, folder / "artifact", live=True, precision="fp32", accept_weak_proof=True)
    return folder / "artifact"


def publish(writer: TimelineWriter, value: float | None = None, *, event_time: int | None = None) -> Segment:
    """Publish the next epoch, whose rows and bias are its number, or `value`."""
    number = np.float32(writer.position.epoch + 1 if value is None else value)
    rows = TableDelta(
        "table",
        "row_number",
        DIM,
        ArrayTensor(np.arange(ROWS, dtype=np.int64)),
        ArrayTensor(np.full((ROWS, DIM), number)),
        no_keys("row_number"),
    )
    times = {} if event_time is None else {"event_time": event_time}
    return writer.publish(Delta((rows,), {"bias": ArrayTensor(np.full(2, number))}), **times)


def epoch_of(outputs: dict[str, np.ndarray]) -> float:
    """Return the epoch of an answer, after checking that all of it is of one epoch."""
    epoch = float(outputs["rows"].flat[0])
    np.testing.assert_array_equal(outputs["rows"], np.full_like(outputs["rows"], epoch))
    np.testing.assert_array_equal(outputs["y"], np.full_like(outputs["y"], (DIM + 1) * epoch))
    return epoch
