# SPDX-License-Identifier: Apache-2.0
"""Collect latencies of an open loop in time spans and around moments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Latencies", "percentile"]

Floats = np.ndarray[Any, np.dtype[np.float64]]


class Latencies:
    """Contain latencies of requests by the time at which they were due.

    Parameters
    ----------
    at : ndarray [requests] float64
        Unix time.
    microseconds : ndarray [requests] float64
    """

    def __init__(self, at: Floats, microseconds: Floats) -> None:
        order = np.argsort(at)
        self._at, self._us = at[order], microseconds[order]

    @classmethod
    def read(cls, path: Path, started: float) -> Latencies:
        """Read the output of `loadgen --samples`."""
        pairs = np.fromfile(path, "<i8").reshape(-1, 2).astype(np.float64)
        return cls(started + pairs[:, 0] / 1e9, pairs[:, 1] / 1e3)

    @classmethod
    def concatenated(cls, parts: Iterable[Latencies]) -> Latencies:
        """Concatenate measurements."""
        every = list(parts)
        return cls(np.concatenate([part._at for part in every]), np.concatenate([part._us for part in every]))

    def every(self) -> Floats:
        """Return all latencies [µs], in the order in which requests were due."""
        return self._us

    def within(self, begin: float, end: float) -> Floats:
        """Return the latencies of requests due from `begin` up to `end` [µs]."""
        return self._us[np.searchsorted(self._at, begin) : np.searchsorted(self._at, end)]

    def answered(self, begin: float, end: float) -> int:
        """Return how many requests were completed from `begin` up to `end`, regardless of when they were due."""
        answers = self._at + self._us / 1e6
        return int(np.count_nonzero((answers >= begin) & (answers < end)))

    def pooled(self, spans: Iterable[tuple[float, float]]) -> Floats:
        """Return the latencies within any of the spans [µs]."""
        return np.concatenate([np.empty(0), *(self.within(*span) for span in spans)])

    def windows(self, spans: Iterable[tuple[float, float]], seconds: float) -> list[float]:
        """Return the p99 of each window of `seconds` within the spans [µs], without the rest of a span."""
        found = []
        for begin, end in spans:
            for number in range(int((end - begin) / seconds)):
                part = self.within(begin + number * seconds, begin + (number + 1) * seconds)
                if part.size:
                    found.append(percentile(part, 99))
        return found

    def around(self, moments: Sequence[float], reach: float, step: float) -> list[dict[str, float]]:
        """Return the latencies around moments, pooled over all moments.

        Returns
        -------
        course : list of dict
            `from` [s] relative to the moment, `requests`, and if there are any, `p50_us`, `p99_us`, `max_us`.
        """
        course = []
        for number in range(round(2 * reach / step)):
            begin = round(-reach + number * step, 6)
            part = self.pooled((moment + begin, moment + begin + step) for moment in moments)
            entry = {"from": begin, "requests": float(part.size)}
            if part.size:
                entry |= {"p50_us": percentile(part, 50), "p99_us": percentile(part, 99), "max_us": float(part.max())}
            course.append(entry)
        return course


def percentile(values: Floats, percent: float) -> float:
    """Return a percentile of measured values, which is one of them (nearest rank)."""
    return float(np.percentile(values, percent, method="inverted_cdf"))
