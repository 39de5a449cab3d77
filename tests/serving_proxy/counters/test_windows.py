# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from helpers.proxies.host_statistics import shadow_version, stats, version_stats
from serving_proxy.counters.tally import Tally
from serving_proxy.counters.windows import Totals, Window

KEY = ("ranking", 1)


def _add(totals: Totals, host: str, ok: int, time: float) -> bool:
    return totals.add(host, stats({1: version_stats(ok=ok)}, time=time))


def test_counters_from_before_the_start_are_left_out() -> None:
    totals = Totals()
    _add(totals, "host-0", 1000, 1.0)
    assert totals.of(KEY).requests == 0
    _add(totals, "host-0", 1100, 2.0)
    assert totals.of(KEY).requests == 100
    assert totals.of(KEY).latency.count == 100


def test_hosts_are_summed() -> None:
    totals = Totals()
    for host in ("host-0", "host-1"):
        _add(totals, host, 10, 1.0)
        _add(totals, host, 30, 2.0)
    assert totals.of(KEY).requests == 40


def test_a_host_that_was_restarted_counts_from_zero() -> None:
    totals = Totals()
    _add(totals, "host-0", 100, 1.0)
    _add(totals, "host-0", 150, 2.0)
    _add(totals, "host-0", 120, 3.0)
    assert totals.of(KEY).requests == 50 + 120


def test_a_version_that_returns_is_not_counted_twice() -> None:
    totals = Totals()
    _add(totals, "host-0", 100, 1.0)
    totals.add("host-0", stats({}, time=2.0))
    _add(totals, "host-0", 130, 3.0)
    assert totals.of(KEY).requests == 30


def test_a_version_is_forgotten_once_no_host_reports_it() -> None:
    totals = Totals()
    _add(totals, "host-0", 100, 1.0)
    totals.keep(set())
    _add(totals, "host-0", 130, 2.0)
    assert totals.of(KEY).requests == 30
    totals.add("host-0", stats({}, time=3.0))
    totals.keep(set())
    _add(totals, "host-0", 150, 4.0)
    assert totals.of(KEY).requests == 150


def test_the_same_statistics_are_read_once() -> None:
    totals = Totals()
    assert _add(totals, "host-0", 100, 1.0)
    assert not _add(totals, "host-0", 100, 1.0)
    assert not totals.add("host-1", {})


def test_shadow_comparisons_are_counted_too() -> None:
    totals = Totals()
    for time, compared in ((1.0, 10), (2.0, 110)):
        totals.add("host-0", stats({}, time=time) | {"shadow": stats({1: shadow_version(compared)}, time=time)})
    found = totals.of(KEY)
    assert found.mirrored == 100
    assert found.correlation.count == 100


def test_forgotten_versions_have_no_counters() -> None:
    totals = Totals()
    _add(totals, "host-0", 100, 1.0)
    _add(totals, "host-0", 200, 2.0)
    totals.keep(set())
    assert totals.of(KEY) == Tally()


def test_window_holds_the_last_seconds() -> None:
    window = Window(60.0, 0.0)
    for second in range(300):
        recent = window.add(float(second), Tally(outcomes={"OK": 10 * second}))
        assert recent.requests <= 10 * 61
    assert recent.requests >= 10 * 60
    assert window.covered(299.0) == 60.0
    assert len(window._samples) < 70


def test_window_begins_with_its_first_total() -> None:
    window = Window(60.0, 0.0)
    assert window.add(0.0, Tally(outcomes={"OK": 500})).requests == 0
    assert window.add(1.0, Tally(outcomes={"OK": 501})).requests == 1
