# SPDX-License-Identifier: Apache-2.0
"""Simulate what a bad version costs before the guard stops it.

The guard judges each second the requests of the last `window_s` seconds, and stops a version if Wilson's interval of
its failed part is beyond the limit (docs/guard.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

# Hosts write their statistics each second, and follow a new state within another one.
_DELAY_S = 2
_MOST_S = 3600


@dataclass(frozen=True)
class GuardSettings:
    """Contain the settings of the guard, with its defaults."""

    error_part: float = 0.01
    min_requests: int = 200
    window_s: int = 60
    confidence: float = 0.999


@dataclass(frozen=True)
class BadVersion:
    """The cost of a bad version until the guard stops it.

    Attributes
    ----------
    model : str
    percent : float
        Percentage of the requests of the model that it gets.
    failing : float
        Part of its requests that fails.
    stopped_s : float or None [s]
        Time until it gets no more requests; None: the guard does not stop it within an hour.
    requests, failed : float
        Requests that it got until then, and those that failed; means over the runs.
    """

    model: str
    percent: float
    failing: float
    stopped_s: float | None
    requests: float
    failed: float


def wilson_low(failed: int, total: int, confidence: float) -> float:
    """Return the lower end of Wilson's interval for a part, one-sided."""
    if total == 0:
        return 0.0
    z = NormalDist().inv_cdf(confidence)
    part = failed / total
    middle = part + z * z / (2 * total)
    swing = z * math.sqrt(part * (1 - part) / total + z * z / (4 * total * total))
    return (middle - swing) / (1 + z * z / total)


def bad_version(
    model: str, qps: float, percent: float, failing: float, settings: GuardSettings, seed: int, runs: int = 20
) -> BadVersion:
    """Simulate a version that fails a part of its requests from its first second on.

    Parameters
    ----------
    model : str
    qps : float [requests/s]
        Of all versions of the model, over the whole fleet.
    percent, failing : float
    settings : GuardSettings
    seed, runs : int
    """
    random = np.random.default_rng([seed, 11])
    times, requests, failures = [], [], []
    for _ in range(runs):
        total = random.poisson(qps * percent / 100, _MOST_S + _DELAY_S)
        failed = random.binomial(total, failing)
        seen, wrong = np.cumsum(total), np.cumsum(failed)
        stopped = _stopped(seen, wrong, settings)
        end = _MOST_S if stopped is None else stopped + _DELAY_S
        times.append(math.inf if stopped is None else float(end))
        requests.append(float(seen[end - 1]))
        failures.append(float(wrong[end - 1]))
    mean = float(np.mean(times))
    return BadVersion(
        model, percent, failing, mean if math.isfinite(mean) else None, float(np.mean(requests)),
        float(np.mean(failures)),
    )  # fmt: skip


def _stopped(seen: np.ndarray, wrong: np.ndarray, settings: GuardSettings) -> int | None:
    """Return the second after which the guard finds the version bad."""
    for second in range(_MOST_S):
        start = second - settings.window_s
        total = int(seen[second] - (seen[start] if start >= 0 else 0))
        failed = int(wrong[second] - (wrong[start] if start >= 0 else 0))
        if total >= settings.min_requests and wilson_low(failed, total, settings.confidence) > settings.error_part:
            return second + 1
    return None
