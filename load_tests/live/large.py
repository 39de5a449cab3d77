# SPDX-License-Identifier: Apache-2.0
"""Publish the epochs of a large live model: one percent of its rows, and its dense layers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from graph_tools.store.lineage import read_lineage
from graph_tools.store.segment import Segment
from graph_tools.store.timeline_writer import TimelineWriter
from graph_tools.tensors import Array
from load_tests.live.client import LiveClients
from load_tests.live.model import HOT, Shape, delta_of, ensure_artifact
from load_tests.live.setup import Setup

__all__ = ["LargeModel", "shape_of"]

_CHANGED = 0.01
_CONFIG = {"session_num": 2, "intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1, "warmup_runs": 1}
_BATCH = 8


def shape_of(setup: Setup) -> Shape:
    """Return 10 million rows of 16, with 26 lookups for each row of a request and a hidden layer of 256."""
    return Shape(keys=setup.size(10_000_000, 200_000), dim=16, features=26, shown=1, hidden=256)


class LargeModel:
    """Own a large model and the writer of its timeline.

    Parameters
    ----------
    setup : Setup
    folder : Path
        An empty folder; the writer's timeline is in it.
    """

    def __init__(self, setup: Setup, folder: Path) -> None:
        self.shape = shape_of(setup)
        self.artifact = ensure_artifact(self.shape, setup.cache)
        position = read_lineage(self.artifact)
        assert position is not None
        self.writer = TimelineWriter(folder / "written", position, "bench-live")
        self._setup = setup
        self._draw = np.random.default_rng(1)

    def publish(self) -> tuple[Segment, int]:
        """Publish the next epoch; return its segment and the time just before it got its name [ns, monotonic]."""
        times: list[int] = []
        epoch = self.writer.position.epoch + 1
        delta = delta_of(self.shape, epoch, self._changed())
        segment = self.writer.publish(delta, before=lambda _: times.append(time.monotonic_ns()))
        return segment, times[0]

    def _changed(self) -> Array:
        others = self._draw.integers(HOT, self.shape.keys, int(self.shape.keys * _CHANGED) - HOT)
        return np.unique(np.concatenate([np.arange(HOT), others])).astype(np.int64)

    @contextmanager
    def clients(self, timeline: Path, rate: float) -> Iterator[LiveClients]:
        """Serve the model to two clients, which send `rate` requests a second together."""
        config = _CONFIG | {"follow": str(timeline)}
        options = {"threads": 2, "rate": rate, "batch": _BATCH, "hot": HOT}
        with LiveClients(self._setup, self.artifact, self.shape, config, **options) as running:
            yield running
