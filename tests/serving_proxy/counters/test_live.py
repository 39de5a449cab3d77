# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import Any

from helpers.proxies.lifecycle_records import host
from serving_proxy.counters.live import LiveCounters
from serving_proxy.records.hosts import HostSeen

KEY = ("ranking", 3)


def reports(epoch: int, name: str = "host-0", **more: Any) -> HostSeen:
    live = {"epoch": epoch, "oldest_epoch": 0, "newest_epoch": epoch, "rows": 100 * epoch, "overlay_bytes": 64} | more
    return replace(host({3: "ready"}, name), stats={"models": {"ranking": {"versions": {"3": {"live": live}}}}})


def test_hosts_are_summed_up_and_rates_are_of_the_last_seconds() -> None:
    counters = LiveCounters()
    for second in range(30):
        knows = None if second < 5 else (1000 + second) * 1_000_000
        hosts = [reports(second, knows_us=knows), reports(second + 1, "host-1", refused=2, error="damaged")]
        counters.step([*hosts, replace(reports(0, "gone"), alive=False)], [KEY, ("ranking", 4)], 1002.5 + second)
        assert counters.figures[KEY].age_s == (None if knows is None else 2.5)
    assert list(counters.figures) == [KEY]
    found = counters.figures[KEY]
    assert (found.epoch, found.newest_epoch, found.overlay_bytes) == (29, 30, 128)
    assert (found.rows_per_s, found.refused, found.error, found.held) == (100, 2, "damaged", False)


def test_a_version_that_is_loaded_again_has_no_negative_rate() -> None:
    counters = LiveCounters()
    for second, epoch in enumerate((100, 101, 1, 2)):
        counters.step([reports(epoch)], [KEY], float(second))
        assert counters.figures[KEY].rows_per_s == (0, 100, 0, 100)[second]
    counters.step([], [KEY], 9.0)
    assert counters.figures == {}
