# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import random

import pytest

from serving_proxy.guard.bounds import excess, mean, quantile, wilson


def test_quantile_is_that_of_the_normal_distribution() -> None:
    assert quantile(0.975) == pytest.approx(1.95996, abs=1e-4)


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    # Newcombe 1998 (Interval estimation for the single proportion), table 1, method 3, 95 % two-sided.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_published_intervals(hits: int, trials: int, low: float, high: float) -> None:
    assert wilson(hits, trials, quantile(0.975)) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    # Newcombe 1998 (difference between independent proportions), table II, method 10, 95 % two-sided.
    [((56, 70), (48, 80), 0.0524, 0.3339), ((9, 10), (3, 10), 0.1705, 0.8090), ((10, 10), (0, 20), 0.6791, 1.0)],
)
def test_excess_gives_published_intervals(
    first: tuple[int, int], second: tuple[int, int], low: float, high: float
) -> None:
    assert excess(*first, *second, quantile(0.975)) == pytest.approx((low, high), abs=5e-5)


def test_an_empty_sample_has_the_widest_interval() -> None:
    assert wilson(0, 0, 3.0) == (0.0, 1.0)
    assert mean(0.0, 0.0, 0, 3.0) == (-math.inf, math.inf)
    low, high = excess(0, 0, 0, 0, 3.0)
    assert low <= -0.5
    assert high >= 0.5


def test_the_interval_of_a_mean_covers_the_true_mean() -> None:
    dice = random.Random(1)
    missed = 0
    for _ in range(400):
        values = [dice.gauss(0.8, 0.1) for _ in range(200)]
        low, high = mean(sum(values), sum(value * value for value in values), len(values), quantile(0.99))
        missed += not low <= 0.8 <= high
    assert missed <= 20
