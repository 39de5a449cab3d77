# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_proxy.experiments.ramps import advance, finished, remaining, steps, weight_at
from serving_proxy.records.models import Ramp

WEIGHT = st.integers(0, 10_000)
SECONDS = st.floats(0.001, 1e7)
RAMPS = st.builds(Ramp, version=st.just(4), start=WEIGHT, target=WEIGHT, seconds=SECONDS)


@given(RAMPS)
def test_a_ramp_begins_at_its_start_and_ends_at_its_target(ramp: Ramp) -> None:
    assert weight_at(ramp) == ramp.start
    assert weight_at(advance(ramp, ramp.seconds)) == ramp.target
    assert finished(advance(ramp, ramp.seconds))
    assert remaining(advance(ramp, 2 * ramp.seconds)) == 0


@given(RAMPS, st.lists(st.floats(0, 1e6), max_size=30))
def test_a_ramp_is_monotonic(ramp: Ramp, pauses: list[float]) -> None:
    weights = [weight_at(ramp)]
    for pause in pauses:
        ramp = advance(ramp, pause)
        weights.append(weight_at(ramp))
    assert weights == sorted(weights, reverse=ramp.target < ramp.start)
    low, high = sorted((ramp.start, ramp.target))
    assert all(low <= weight <= high for weight in weights)


@given(RAMPS, st.floats(0, 1))
def test_a_ramp_stays_close_to_a_straight_line(ramp: Ramp, part: float) -> None:
    found = weight_at(advance(ramp, part * ramp.seconds))
    distance = abs(ramp.target - ramp.start)
    line = ramp.start + part * (ramp.target - ramp.start)
    assert abs(found - line) <= distance / steps(ramp.seconds) + 1


@given(RAMPS, st.integers(2, 1000))
def test_many_small_steps_change_the_weight_once_per_stair(ramp: Ramp, count: int) -> None:
    weights = {weight_at(advance(ramp, ramp.seconds * place / count)) for place in range(count + 1)}
    assert len(weights) <= steps(ramp.seconds) + 1


def test_a_clock_never_runs_backwards() -> None:
    ramp = Ramp(version=4, start=0, target=100, seconds=10, elapsed=5)
    assert advance(ramp, -3).elapsed == 5


@pytest.mark.parametrize(("seconds", "count"), [(0.1, 10), (50, 10), (500, 100), (3600, 200), (1e6, 200)])
def test_the_number_of_stairs_depends_on_the_duration(seconds: float, count: int) -> None:
    assert steps(seconds) == count
