# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from helpers.proxies.host_statistics import stats, version_stats
from serving_proxy.counters.history import PERIOD_S, POINTS, History
from serving_proxy.counters.windows import Totals

KEY = ("ranking", 1)


def _count(totals: Totals, time: float, ok: int, failed: int = 0) -> None:
    totals.add("host-0", stats({1: version_stats(ok=ok, milliseconds={2.0: ok}, INTERNAL=failed)}, time=time))


def test_a_point_has_rates_and_latencies_of_its_time() -> None:
    totals = Totals()
    history = History(totals)
    _count(totals, 0.0, 0)
    history.step([KEY], 1000.0)
    _count(totals, 2.0, 100, 10)
    history.step([KEY], 1002.0)
    ((at, rate, failures, p50, p99),) = history.lines()[KEY]
    assert (at, rate, failures) == (1002.0, 55.0, 5.0)
    assert p50 == pytest.approx(2.0, rel=0.2)
    assert p99 == pytest.approx(2.0, rel=0.2)


def test_without_requests_there_is_no_latency() -> None:
    history = History(Totals())
    history.step([KEY], 1000.0)
    history.step([KEY], 1002.0)
    assert history.newest()[KEY] == (1002.0, 0.0, 0.0, None, None)


def test_only_the_last_minutes_are_kept() -> None:
    history = History(Totals())
    for step in range(POINTS + 20):
        assert history.step([KEY], 1000.0 + PERIOD_S * step)
        assert not history.step([KEY], 1000.0 + PERIOD_S * step + 0.5)
    points = history.lines()[KEY]
    assert len(points) == POINTS
    assert points[-1][0] - points[0][0] == PERIOD_S * (POINTS - 1)


def test_a_version_that_is_gone_has_no_line() -> None:
    history = History(Totals())
    for step in range(3):
        history.step([KEY], 1000.0 + PERIOD_S * step)
    history.step([], 1010.0)
    assert history.lines() == {}


def test_a_gap_in_the_readings_adds_no_point() -> None:
    totals = Totals()
    history = History(totals)
    for time, ok in ((0.0, 0), (2.0, 10), (1000.0, 100_000), (1002.0, 100_010)):
        _count(totals, time, ok)
        history.step([KEY], 1000.0 + time)
    assert [point[1] for point in history.lines()[KEY]] == [5.0, 5.0]
