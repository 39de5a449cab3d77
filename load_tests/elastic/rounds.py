# SPDX-License-Identifier: Apache-2.0
"""Rounds in which contestants alternate, so that all of them meet the same conditions of a shared machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

__all__ = ["alternate", "cpu_rate", "ratio"]


def cpu_rate(work: Callable[[int], object], rows: int, seconds: float) -> float:
    """Return how many rows a CPU-second of this process handles.

    Parameters
    ----------
    work : callable
        Handles a batch of `rows` rows; its argument counts the calls.
    seconds : float
        How long to measure [s of CPU time of the process, all its threads].
    """
    work(0)
    count, start = 0, time.process_time()
    while (spent := time.process_time() - start) < seconds or count == 0:
        work(count)
        count += 1
    return count * rows / spent


def alternate(contestants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Any]:
    """Return for each contestant the median over the rounds, the least, the greatest, and all of them.

    Every second round runs in the opposite order.
    """
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds):
        order = list(contestants.items())
        for name, measure in order if turn % 2 == 0 else reversed(order):
            found[name].append(measure())
    return {
        name: {"median": median(values), "least": min(values), "greatest": max(values), "rounds": values}
        for name, values in found.items()
    }


def ratio(figures: Mapping[str, Any], one: str, other: str) -> float:
    """Return the median over the rounds of the ratio of two contestants."""
    pairs = zip(figures[one]["rounds"], figures[other]["rounds"], strict=True)
    return float(median(first / second for first, second in pairs))
