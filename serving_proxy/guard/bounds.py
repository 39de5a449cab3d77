# SPDX-License-Identifier: Apache-2.0
"""Confidence bounds for rates, their differences and means.

A rate of 1 in 50 does not prove 2 %. A limit is compared with the end of an interval that contains the true value with
the wanted confidence, so that a few requests are not enough to find a version bad.
"""

from __future__ import annotations

import math
from statistics import NormalDist


def quantile(confidence: float) -> float:
    """Return the distance of a one-sided bound of this confidence, in standard errors."""
    return NormalDist().inv_cdf(confidence)


def wilson(hits: float, trials: float, z: float) -> tuple[float, float]:
    """Return Wilson's score interval of a rate.

    Parameters
    ----------
    hits, trials : float
        Number of successes and number of trials.
    z : float
        From `quantile`.

    Notes
    -----
    (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n). Unlike p ± z √(p(1-p)/n) it is not empty at p = 0 and keeps its
    confidence with small n.

    Source: E. B. Wilson, Probable Inference, the Law of Succession, and Statistical Inference, JASA 22 (1927).
    """
    if trials <= 0:
        return 0.0, 1.0
    rate = min(1.0, max(0.0, hits / trials))
    square = z * z / trials
    middle = rate + square / 2
    reach = math.sqrt(square * rate * (1 - rate) + square * square / 4)
    return max(0.0, (middle - reach) / (1 + square)), min(1.0, (middle + reach) / (1 + square))


def excess(hits: float, trials: float, other_hits: float, other_trials: float, z: float) -> tuple[float, float]:
    """Return the interval of the difference between a rate and another rate.

    Notes
    -----
    p - q - √((p - l)² + (v - q)²) and p - q + √((u - p)² + (q - k)²), with Wilson's intervals [l, u] and [k, v].

    Source: R. G. Newcombe, Interval Estimation for the Difference between Independent Proportions, Statistics in
    Medicine 17 (1998), method 10.
    """
    low, high = wilson(hits, trials, z)
    other_low, other_high = wilson(other_hits, other_trials, z)
    rate = hits / trials if trials > 0 else 0.5
    other_rate = other_hits / other_trials if other_trials > 0 else 0.5
    difference = rate - other_rate
    return (
        difference - math.hypot(rate - low, other_high - other_rate),
        difference + math.hypot(high - rate, other_rate - other_low),
    )


def mean(total: float, squares: float, count: float, z: float) -> tuple[float, float]:
    """Return the interval of a mean.

    Parameters
    ----------
    total, squares : float
        Sums of the values and of their squares.
    count : float
    z : float
        From `quantile`.
    """
    if count <= 0:
        return -math.inf, math.inf
    middle = total / count
    variance = max(0.0, squares / count - middle * middle) * count / max(1.0, count - 1)
    reach = z * math.sqrt(variance / count)
    return middle - reach, middle + reach
