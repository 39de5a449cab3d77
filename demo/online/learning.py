# SPDX-License-Identifier: Apache-2.0
"""Learn from the stream: each batch is scored by the served model, then learned, and published every second."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

import elastic_training as et
from demo.movielens import Rows
from demo.online import model as model_module
from demo.online.asking import Ask, Sent
from demo.online.model import Ranker
from demo.online.stream import batches
from graph_tools.store.segment import Segment
from graph_tools.store.timeline import list_segments

STREAM = "ratings"


@dataclasses.dataclass(frozen=True)
class Learned:
    """Describe what the trainer has learned, and how the served model scored it before.

    Attributes
    ----------
    clicks, scores : ndarray [ratings] float32
        The served model's score of each rating before it was learned.
    came : ndarray [ratings] float64
        When each rating came [s since 1970].
    frozen_at : int
        Number of these ratings before the export of the frozen model.
    publisher : dict
        `Publisher.stats()` at the end.
    epoch : int
        The last one.
    """

    clicks: NDArray[np.float32]
    scores: NDArray[np.float32]
    came: NDArray[np.float64]
    frozen_at: int
    publisher: dict[str, Any]
    epoch: int


@dataclasses.dataclass(frozen=True)
class Stream:
    """Ratings from a position on, `size` at a time, that shall take `seconds`."""

    rows: Rows
    start: int
    size: int
    seconds: float


def tensors(rows: Rows) -> dict[str, Any]:
    return {name: tf.constant(column) for name, column in rows.features.items()}


def learn_before(model: Ranker, rows: Rows, size: int) -> Any:
    """Learn the beginning of the stream, and return the step with which training goes on."""
    # Tables exist once they have seen keys.
    model.logits(tensors(rows.take(np.arange(1))), training=False)
    step = model_module.make_step(model)
    for batch in batches(rows, size):
        step(tensors(batch.rows), tf.constant(batch.rows.clicks))
    return step


def learn(
    model: Ranker,
    step: Any,
    stream: Stream,
    ask: Ask,
    publisher: et.Publisher,
    frozen: Path,
    advance: Callable[[int, int], None],
) -> Learned:
    """Score each batch with `ask` and learn it; write the model at half of the stream to `frozen`."""
    parts = list(batches(stream.rows, stream.size, stream.start))
    scores, came, frozen_at = [], [], 0
    begin = time.monotonic()
    for number, batch in enumerate(parts):
        time.sleep(max(0.0, begin + stream.seconds * number / len(parts) - time.monotonic()))
        now = time.time()
        scores.append(ask(batch.rows.features).scores)
        came.append(np.full(len(batch.rows), now))
        step(tensors(batch.rows), tf.constant(batch.rows.clicks))
        publisher.step(event_time=now, streams={STREAM: batch.end})
        if not frozen_at and batch.end >= len(stream.rows) / 2:
            publisher.push()
            model_module.export(model, frozen)
            frozen_at = batch.end - stream.start
        advance(number + 1, len(parts))
    epoch = publisher.flush()
    clicks = stream.rows.clicks[stream.start :]
    return Learned(clicks, np.concatenate(scores), np.concatenate(came), frozen_at, publisher.stats(), epoch)


def served_after(came: NDArray[np.float64], timeline: Path, sent: Sequence[Sent]) -> NDArray[np.float64]:
    """Return how long after each sample a client first got an answer of a model that had learned it [s].

    Parameters
    ----------
    came : ndarray [samples], ascending
    timeline : Path
        Its segments tell the newest sample of each epoch.
    sent : sequence of Sent
        In the order of their responses. Samples that no answer knew are infinite.
    """
    segments = [Segment(timeline / file.name).header for file in list_segments(timeline)]
    known = [(header.event_time / 1e6, header.last_epoch) for header in segments if header.event_time > 0]
    times, epochs = np.array([time for time, _ in known]), np.array([epoch for _, epoch in known])
    done = np.array([request.done for request in sent if not request.lost])
    newest = np.maximum.accumulate(np.array([request.epoch for request in sent if not request.lost]))
    # Times are stored in microseconds.
    segment = np.searchsorted(times, came - 1e-6)
    after = np.full(len(came), np.inf)
    inside = segment < len(epochs)
    answer = np.searchsorted(newest, epochs[segment[inside]])
    found = answer < len(done)
    after[np.flatnonzero(inside)[found]] = done[answer[found]] - came[inside][found]
    return after


def stock_scores(folder: Path, rows: Rows) -> NDArray[np.float32]:
    """Return the scores [rows] of an export in stock TensorFlow."""
    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    parts = [serve(**tensors(batch.rows))["probability"].numpy() for batch in batches(rows, 2000)]
    return np.concatenate(parts)
