# SPDX-License-Identifier: Apache-2.0
"""Compare the p99 of requests with a delta every second and without, in turns."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from load_tests._report import Target
from load_tests.live.client import LiveClients
from load_tests.live.large import LargeModel
from load_tests.live.setup import Setup

__all__ = ["interval_of", "judge", "measure"]

#: Largest ratio of the p99 with deltas to that without, beyond the interval of without over without.
MOST = 1.05
_RATE = 1000.0
_SIDES = ("without", "deltas", "without again")


def interval_of(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median of ratios, by drawing from them again."""
    draw = np.random.default_rng(0)
    medians = np.median(draw.choice(np.asarray(ratios), (2000, len(ratios))), axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(low), float(high)


class _Timeline:
    """Give segments that were written before their names in a timeline, so that writing takes no CPU time."""

    def __init__(self, folder: Path, segments: Sequence[Path]) -> None:
        self._folder, self._segments = folder, list(segments)
        folder.mkdir()

    def publish(self) -> None:
        """Link the next segment."""
        segment = self._segments.pop(0)
        os.link(segment, self._folder / segment.name)


def measure(setup: Setup) -> dict[str, Any]:
    """Measure rounds of the sides without, with, and without deltas again; their order is reversed in every other one.

    All sides have the changed rows of the deltas before.
    """
    rounds, seconds = setup.size(10, 2), setup.size(5, 1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = LargeModel(setup, folder)
        for number in range(rounds * seconds + 1):
            model.publish()
            setup.tick(f"segment {number + 1}")
        timeline = _Timeline(folder / "timeline", sorted(model.writer.folder.glob("*.delta")))
        with model.clients(folder / "timeline", _RATE) as clients:
            timeline.publish()
            clients.wait_for(1)
            time.sleep(seconds)
            found = []
            for number in range(rounds):
                sides = _SIDES if number % 2 == 0 else _SIDES[::-1]
                found.append({side: _measure_side(clients, timeline, side, seconds) for side in sides})
                setup.tick(f"round {number + 1}")
            last = rounds * seconds + 1
            clients.wait_for(last)
    report = {key: value for key, value in clients.report.items() if key != "switches"}
    p99 = [{side: turn[side]["p99_us"] for side in _SIDES} for turn in found]
    ratios = [2 * turn["deltas"] / (turn["without"] + turn["without again"]) for turn in p99]
    same = [turn["without again"] / turn["without"] for turn in p99]
    return report | {
        "wrong": report["wrong"] + report["failed"],
        "rate": _RATE,
        "rounds": found,
        "p99_us": {side: median(turn[side] for turn in p99) for side in _SIDES},
        "ratio": round(median(ratios), 4),
        "ratio_interval": [round(value, 4) for value in interval_of(ratios)],
        "same": round(median(same), 4),
        "same_interval": [round(value, 4) for value in interval_of(same)],
    }


def _measure_side(clients: LiveClients, timeline: _Timeline, side: str, seconds: int) -> dict[str, Any]:
    time.sleep(0.3)
    clients.measure()
    begun = time.monotonic()
    for second in range(seconds):
        if side == "deltas":
            timeline.publish()
        time.sleep(max(0.0, begun + second + 1 - time.monotonic()))
    return clients.measure()


def judge(case: dict[str, Any]) -> list[Target]:
    """Compare the ratio with the target."""
    name = "p99 with a delta every second over p99 without (1.05 times the interval of A/A)"
    return [Target(name, case["ratio"], round(MOST * max(1.0, case["same_interval"][1]), 4), at_least=False)]
