# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
from bisect import bisect_left

import pytest

from serving_proxy.counters.histogram import Histogram

BOUNDS = tuple(100.0 * 2 ** (step / 4) for step in range(60))


def _of(values: list[float]) -> Histogram:
    counts = [0] * (len(BOUNDS) + 1)
    for value in values:
        counts[bisect_left(BOUNDS, value)] += 1
    return Histogram(BOUNDS, tuple(counts))


def test_quantile_is_within_a_bucket_of_the_exact_one() -> None:
    dice = random.Random(7)
    values = sorted(dice.lognormvariate(7.5, 0.8) for _ in range(5000))
    for fraction in (0.5, 0.9, 0.99):
        exact = values[int(fraction * len(values)) - 1]
        found = _of(values).quantile(fraction)
        assert found is not None
        assert exact / 2**0.25 <= found <= exact * 2**0.25


def test_above_counts_only_certain_excesses() -> None:
    histogram = Histogram((10.0, 20.0, 40.0), (1, 2, 4, 8))
    assert [histogram.above(limit) for limit in (5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0)] == [14, 14, 12, 12, 8, 8, 0]


def test_sum_and_difference_of_counts_with_zeros_left_out() -> None:
    short, long = Histogram((10.0, 20.0), (1, 2)), Histogram((10.0, 20.0), (1, 2, 3))
    assert (short + long).counts == (2, 4, 3)
    assert (long - short).counts == (0, 0, 3)


def test_histograms_with_different_bounds_are_not_combined() -> None:
    few, many = Histogram((10.0,), (1, 2)), Histogram((11.0,), (5, 5))
    assert (few + many) is many
    assert (many - few) is many


def test_an_empty_histogram_has_no_quantile() -> None:
    assert Histogram().quantile(0.99) is None
    assert Histogram(BOUNDS, ()).above(1.0) == 0


def test_values_beyond_the_last_bound_count_as_the_last_bound() -> None:
    assert Histogram((10.0, 20.0), (0, 0, 5)).quantile(0.5) == pytest.approx(20.0)
