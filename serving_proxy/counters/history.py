# SPDX-License-Identifier: Apache-2.0
"""Rates and latencies of the last minutes, with a point every two seconds, for a dashboard that was just opened."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from serving_proxy.counters.stats_file import Key
from serving_proxy.counters.tally import Tally
from serving_proxy.counters.windows import Totals

PERIOD_S = 2.0
POINTS = 150

Point = tuple[float, float, float, float | None, float | None]
"""Time [s since 1970], requests and failures [1/s], p50 and p99 [ms]; None without requests."""


@dataclass
class _Line:
    last: Tally
    points: deque[Point] = field(default_factory=lambda: deque(maxlen=POINTS))


class History:
    """Keeps the lines of every version that hosts have statistics of."""

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._lines: dict[Key, _Line] = {}
        self._last = 0.0

    def step(self, keys: Iterable[Key], now: float | None = None) -> bool:
        """Add a point to every line if one is due, and return whether it was."""
        now = time.time() if now is None else now
        passed = now - self._last
        # If the clock was set back, the history starts again.
        if 0 <= passed < PERIOD_S:
            return False
        first = passed > 10 * PERIOD_S or passed < 0
        self._last = now
        wanted = set(keys)
        self._lines = {key: line for key, line in self._lines.items() if key in wanted}
        for key in wanted:
            total = self._totals.of(key)
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = _Line(total)
            elif not first:
                line.points.append(_point(now, total - line.last, passed))
            line.last = total
        return True

    def lines(self) -> dict[Key, list[Point]]:
        """Return all points, the oldest first."""
        return {key: list(line.points) for key, line in self._lines.items()}

    def newest(self) -> dict[Key, Point]:
        """Return the last point of each line."""
        return {key: line.points[-1] for key, line in self._lines.items() if line.points}


def _point(now: float, recent: Tally, seconds: float) -> Point:
    return (
        round(now, 1),
        _short(recent.requests / seconds),
        _short(recent.failures / seconds),
        _milliseconds(recent.latency.quantile(0.5)),
        _milliseconds(recent.latency.quantile(0.99)),
    )


def _milliseconds(microseconds: float | None) -> float | None:
    return None if microseconds is None else _short(microseconds / 1000)


def _short(value: float) -> float:
    """Round to three digits, because there are thousands of points."""
    return float(f"{value:.3g}")
