# SPDX-License-Identifier: Apache-2.0
"""Reports as TensorBoard summaries: from `fit`, or from a loop of your own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.ops import summary_ops_v2

from elastic_training.reports.report import SAMPLED_ROWS, Report, TableReport, report

# Values of the enumeration `DataClass` in TensorFlow's summary.proto.
_SCALAR_DATA, _TENSOR_DATA = 1, 2
_BUCKETS = 30
_SCALARS = ("rows", "zero_rows", "candidates", "admitted", "refused", "evicted", "bytes", "bytes_per_row")
_LESS = ("occurrences", "released_rows", "refused_updates", "dropped_updates", "filter_bytes")


def write_summaries(given: Any, step: int | tf.Tensor | None = None, *, sample: int = SAMPLED_ROWS) -> Report:
    """Write a report of tables as summaries of the default writer (`tf.summary`).

    The tags are `elastic/TABLE/NAME`: counters and memory as scalars; norms, counts and ages as histograms.

    Parameters
    ----------
    given : Report, or what `report` takes
    step : int or None
        None: the step of `tf.summary.experimental.set_step`.
    sample : int
        Number of rows of each table to sample.

    Returns
    -------
    Report

    Raises
    ------
    ValueError
        If there is no default writer, no step, or no table.
    """
    if not summary_ops_v2.has_default_writer():
        writer = "tf.summary.create_file_writer(folder)"
        raise ValueError(f"write_summaries: no default writer, expected a call within {writer}.as_default()")
    made = given if isinstance(given, Report) else report(given, sample=sample)
    for table in made.tables:
        _write(table, step)
    return made


def _write(table: TableReport, step: Any) -> None:
    prefix = f"elastic/{table.name}"
    for name in (*_SCALARS, *_LESS):
        _scalar(f"{prefix}/{name}", getattr(table, name), step)
    rows = table.sample
    for name, values in (("norms", rows.norms), ("counts", rows.counts), ("idle_hours", rows.idle_s / 3600.0)):
        _histogram(f"{prefix}/{name}", values, step)


# Written as TensorBoard's own functions do, which need TensorBoard where the model is trained.
def _scalar(tag: str, value: float, step: Any) -> None:
    metadata = tf.compat.v1.SummaryMetadata(data_class=_SCALAR_DATA)
    metadata.plugin_data.plugin_name = "scalars"
    tf.summary.write(tag, tf.constant(float(value)), step, metadata)


def _histogram(tag: str, values: np.ndarray[Any, Any], step: Any) -> None:
    metadata = tf.compat.v1.SummaryMetadata(data_class=_TENSOR_DATA)
    metadata.plugin_data.plugin_name = "histograms"
    counts, edges = np.histogram(values, _BUCKETS) if values.size else (np.zeros(0), np.zeros(1))
    tf.summary.write(tag, np.stack([edges[:-1], edges[1:], counts], axis=1).astype(np.float64), step, metadata)


class SummaryParts:
    """ElasticSummaries, for either Keras."""

    model: Any

    def __init__(self, log_dir: str | Path, every: int | None = None, sample: int = SAMPLED_ROWS) -> None:
        super().__init__()
        if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
            raise ValueError(f"ElasticSummaries: every is {every!r}, expected a number of batches from 1 on, or None")
        self._folder, self._every, self._sample = Path(log_dir) / "elastic", every, sample
        self._writer: Any = None
        self._batches = 0

    def on_train_begin(self, logs: Any = None) -> None:
        self._writer = tf.summary.create_file_writer(str(self._folder))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._batches += 1
        if self._every is not None and self._batches % self._every == 0:
            self._write(self._batches)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._every is None:
            self._write(epoch)

    def on_train_end(self, logs: Any = None) -> None:
        self._writer.close()

    def _write(self, step: int) -> None:
        with self._writer.as_default():
            write_summaries(self.model, step, sample=self._sample)
        self._writer.flush()


class ElasticSummaries(SummaryParts, keras.callbacks.Callback):
    """A callback of `fit` that writes a report after every epoch, or every `every` batches.

    Parameters
    ----------
    log_dir : path
        Folder of TensorBoard; the summaries are in `elastic` in it.
    every : int or None
        Number of batches between two reports; None: each epoch.
    sample : int
        Number of rows of each table to sample.
    """
