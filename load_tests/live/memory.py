# SPDX-License-Identifier: Apache-2.0
"""Measure the memory of a live model over many epochs that change, delete and add rows; their number is constant."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.store.compaction import compact
from graph_tools.store.lineage import read_lineage
from graph_tools.store.timeline_writer import TimelineWriter
from graph_tools.tensors import Array
from load_tests._report import Target
from load_tests.live.client import LiveClients
from load_tests.live.footprint import footprint
from load_tests.live.model import Shape, delta_of, ensure_artifact
from load_tests.live.setup import Setup

__all__ = ["Population", "judge", "measure"]

#: Most memory after all epochs, as a part of the live rows.
MOST = 0.02
#: Shares of the live rows that an epoch changes and replaces; the first rows change in each epoch.
_CHANGED, _REPLACED, _HOT = 0.01, 0.001, 100
_CONFIG = {"session_num": 1, "intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1, "warmup_runs": 1}
#: Epochs that may be published before the first of them has answered.
_AHEAD = 3
_KEEP = 20


class Population:
    """Own the live keys: in each epoch some are deleted, and as many new ones are added.

    Parameters
    ----------
    keys : int
        The first live keys are 0 to `keys` - 1.
    """

    def __init__(self, keys: int) -> None:
        self._draw = np.random.default_rng(1)
        self.live = np.arange(keys, dtype=np.int64)
        self._next = keys

    def turn(self) -> tuple[Array, Array]:
        """Return the keys that are new or change, and the keys that are deleted; both ascend."""
        count = len(self.live)
        places = self._draw.choice(np.arange(_HOT, count), max(1, int(count * _REPLACED)), replace=False)
        deleted = np.sort(self.live[places])
        self.live[places] = np.arange(self._next, self._next + len(places))
        self._next += len(places)
        others = self.live[self._draw.integers(0, count, int(count * _CHANGED))]
        return np.unique(np.concatenate([self.live[:_HOT], self.live[places], others])), deleted


def measure(setup: Setup) -> dict[str, Any]:
    """Publish epochs, and read the memory of the process at the start, in the steady state and at the end.

    Returns
    -------
    case : dict
        `growth` is the memory at the end beyond that of `steady_epoch`, at which 99 % of the first keys have been
        replaced, divided by the live rows; `over_start` beyond that of epoch 0, when all rows had been read.
    """
    epochs = setup.size(10_000, 40)
    steady, every = epochs // 2, epochs // 10
    shape = Shape(keys=setup.size(500_000, 2_000), dim=16, features=26, shown=1, hidden=16)
    artifact = ensure_artifact(shape, setup.cache)
    position = read_lineage(artifact)
    assert position is not None
    population, points, begun = Population(shape.keys), list[dict[str, Any]](), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        writer = TimelineWriter(Path(folder) / "timeline", position, "bench-live")
        config = _CONFIG | {"follow": str(writer.folder)}
        options = {"threads": 1, "rate": 200.0, "batch": 64, "hot": _HOT, "switches": 0}
        with LiveClients(setup, artifact, shape, config, **options) as clients:
            _read_all(clients, shape, points)
            for epoch in range(1, epochs + 1):
                keys, deleted = population.turn()
                writer.publish(delta_of(shape, epoch, keys, deleted))
                clients.wait_for(epoch if epoch % every == 0 else max(0, epoch - _AHEAD))
                if epoch % every == 0:
                    clients.measure()  # forgets its latencies, which would count
                    points.append({"epoch": epoch} | footprint(clients.pid))
                    setup.tick(f"epoch {epoch}, {points[-1]['total'] / 1e6:.1f} MB")
                    compact(writer.folder, last=epoch - min(_KEEP, every // 2))
    report = {key: value for key, value in clients.report.items() if key != "switches"}
    live = shape.keys * shape.dim * 4
    by_epoch = {point["epoch"]: point["total"] for point in points}
    return report | {
        "wrong": report["wrong"] + report["failed"],
        "epochs": epochs,
        "live_rows": shape.keys,
        "live_bytes": live,
        "steady_epoch": steady,
        "points": points,
        "growth": round((by_epoch[epochs] - by_epoch[steady]) / live, 4),
        "over_start": round((by_epoch[epochs] - by_epoch[0]) / live, 4),
        "seconds": round(time.monotonic() - begun, 1),
    }


def _read_all(clients: LiveClients, shape: Shape, points: list[dict[str, Any]]) -> None:
    """Wait until the requests of a client have touched all rows, and add the first point."""
    before = -1
    while (memory := footprint(clients.pid))["total"] > before + shape.keys * shape.dim * 4 * MOST / 20:
        before = memory["total"]
        time.sleep(1.5)
    points.append({"epoch": 0} | memory)


def judge(case: dict[str, Any]) -> list[Target]:
    """Compare the growth with the targets."""
    label = f"memory after {case['epochs']:,} epochs beyond that"
    return [
        Target(f"{label} of epoch {case['steady_epoch']:,}, over the live rows", case["growth"], MOST, at_least=False),
        Target(f"{label} of epoch 0, over the live rows", case["over_start"], MOST, at_least=False),
    ]
