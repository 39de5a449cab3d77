# SPDX-License-Identifier: Apache-2.0
"""Compute when requests are due: phases of Poisson arrivals, the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["LOCUST_MOST", "Phase", "arrivals", "offsets"]

Floats = np.ndarray[Any, np.dtype[np.float64]]

#: Largest rate [requests/s] at which greenlets send on time; above it the native generator sends.
LOCUST_MOST = 500.0


@dataclass(frozen=True)
class Phase:
    """Describe a period of a scenario with one rate.

    Attributes
    ----------
    name : str
    seconds : float [s]
    rate : float [1/s]
        Requests/s on average.
    """

    name: str
    seconds: float
    rate: float

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and 0 < self.rate < float("inf")):
            raise ValueError(f"{self.name}: {self.seconds:g} s at {self.rate:g} requests/s, expected numbers above 0")


def offsets(phases: Sequence[Phase]) -> Iterator[tuple[Phase, float, float]]:
    """Yield each phase with its begin and end [s] after the start."""
    begin = 0.0
    for phase in phases:
        yield phase, begin, begin + phase.seconds
        begin += phase.seconds


def arrivals(phases: Sequence[Phase], seed: int) -> Floats:
    """Draw the moments at which requests are due.

    Parameters
    ----------
    phases : sequence of Phase
    seed : int

    Returns
    -------
    moments : ndarray [requests] float64
        Seconds after the start, ascending.

    Notes
    -----
    In a Poisson process, the number of arrivals in a period is Poisson distributed, and for a given number the moments
    are independent and uniform. Each phase has its own random stream, so changing one rate does not affect the others.
    """
    parts = [np.empty(0)]
    for number, (phase, begin, end) in enumerate(offsets(phases)):
        random = np.random.default_rng([seed, number])
        parts.append(np.sort(random.uniform(begin, end, random.poisson(phase.rate * phase.seconds))))
    return np.concatenate(parts)
