# SPDX-License-Identifier: Apache-2.0
"""Check that arrivals are Poisson, repeatable, and independent between phases."""

from __future__ import annotations

import math

import numpy as np
import pytest

from load_tests.scenarios.arrivals import Phase, arrivals, offsets

PHASES = [Phase("calm", 50.0, 100.0), Phase("burst", 10.0, 400.0), Phase("calm", 20.0, 100.0)]


def test_the_same_seed_gives_the_same_moments() -> None:
    assert np.array_equal(arrivals(PHASES, 1), arrivals(PHASES, 1))
    assert not np.array_equal(arrivals(PHASES, 1)[:100], arrivals(PHASES, 2)[:100])


def test_moments_ascend_and_each_phase_has_its_rate() -> None:
    moments = arrivals(PHASES, 7)
    assert np.all(np.diff(moments) >= 0)
    for phase, begin, end in offsets(PHASES):
        expected = phase.rate * phase.seconds
        assert abs(np.sum((moments >= begin) & (moments < end)) - expected) < 5 * math.sqrt(expected)
    assert moments[0] >= 0
    assert moments[-1] < 80


def test_gaps_are_exponential() -> None:
    gaps = np.diff(arrivals([Phase("only", 200.0, 100.0)], 3))
    assert gaps.mean() == pytest.approx(0.01, rel=0.05)
    # An exponential distribution has the deviation of its mean, and 5 % of it are above three means.
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)
    assert np.mean(gaps > 0.03) == pytest.approx(math.exp(-3), rel=0.15)


def test_rate_of_one_phase_does_not_affect_the_others() -> None:
    other = [PHASES[0], Phase("burst", 10.0, 50.0), PHASES[2]]
    old, new = arrivals(PHASES, 1), arrivals(other, 1)
    for begin, end in ((0, 50), (60, 80)):
        assert np.array_equal(old[(old >= begin) & (old < end)], new[(new >= begin) & (new < end)])


@pytest.mark.parametrize(("seconds", "rate"), [(0.0, 1.0), (1.0, 0.0), (1.0, math.nan), (1.0, math.inf), (-1.0, 5.0)])
def test_a_phase_without_requests_is_refused(seconds: float, rate: float) -> None:
    with pytest.raises(ValueError, match=r"calm: .* expected numbers above 0"):
        Phase("calm", seconds, rate)
