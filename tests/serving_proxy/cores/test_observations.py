# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from cost_model.control import Observation
from helpers.proxies.host_statistics import stats, version_stats
from serving_proxy.cores.observations import Gauges, observation, read_gauges, within_cores
from serving_proxy.counters.stats_file import read_tallies


def test_what_came_is_what_ended_and_what_is_under_way() -> None:
    shown = version_stats(ok=90, milliseconds={1.0: 80, 60.0: 20}, RESOURCE_EXHAUSTED=10) | {"shed": {"queue": 10}}
    tally = read_tallies(stats({3: shown}))["ranking", 3]
    seen = observation(tally, Gauges(0, 2), Gauges(3, 7), 20.0)
    assert (seen.arrivals, seen.completed, seen.sheds, seen.missed) == (105, 90, 10, 30)
    assert (seen.queued, seen.in_flight) == (3, 7)
    assert seen.busy_us == pytest.approx(90 * 900)


def test_nothing_is_nothing() -> None:
    tally = read_tallies(stats({3: version_stats()}))["ranking", 3]
    seen = observation(tally, Gauges(), Gauges(), 20.0)
    assert (seen.arrivals, seen.missed, seen.busy_us) == (0, 0, 0.0)


def test_requests_of_one_run_share_its_time() -> None:
    shown = version_stats(ok=100) | {"batch_requests": {"count": 25, "mean": 4.0}, "in_flight": 2, "queued": 1}
    gauges = read_gauges([stats({3: shown}), stats({3: shown})])["ranking/3"]
    assert gauges == Gauges(2, 4, 4.0)
    tally = read_tallies(stats({3: shown}))["ranking", 3]
    assert observation(tally, gauges, gauges, 20.0).busy_us == pytest.approx(100 * 900 / 4)


@pytest.mark.parametrize(
    "statistics", [{}, {"models": 3}, {"models": {"m": {"versions": {"3": None}}}}, {"models": {"m": []}}]
)
def test_invalid_statistics_count_as_zero(statistics: dict[str, object]) -> None:
    assert set(read_gauges([statistics]).values()) <= {Gauges()}


def test_busy_time_is_limited_to_the_available_core_time() -> None:
    seen = {"a": Observation(busy_us=3e6), "b": Observation(busy_us=1e6), "c": Observation(busy_us=1e6)}
    found = within_cores(seen, [(("a", "b"), 2), (("c", "d"), 2)], 1.0)
    assert [found[name].busy_us for name in "abc"] == [1.5e6, 0.5e6, 1e6]
