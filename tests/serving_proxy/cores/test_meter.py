# SPDX-License-Identifier: Apache-2.0
"""Hosts that write their counters once a second, each at a time of its own, read at irregular times."""

from __future__ import annotations

import math

import pytest

from cost_model.control import ControlledTenant, begin, follow
from helpers.proxies.host_statistics import stats, version_stats
from serving_proxy.cores.meter import PATIENCE_S, Meter
from serving_proxy.cores.tenants import DeployedTenant
from serving_proxy.counters.windows import Totals
from serving_proxy.records.hosts import HostSeen

RATE = 1000
TENANT = DeployedTenant("ranking/3", "ranking", 3, "baseline", 20.0, "/models/3")
# A look that takes a little: phases of looks and of hosts pass each other.
LOOK_S = 0.203


class Hosts:
    """Hosts with a phase [s] and a share of the requests each, and a meter that reads them."""

    def __init__(self, *hosts: tuple[float, float]) -> None:
        self.hosts = hosts
        self.meter = Meter()
        self.totals = Totals()
        self.state = begin([0, 1], [ControlledTenant(TENANT.name, "baseline", 1000.0, 20.0, float(RATE))])
        self.looks: list[float] = []
        self.rates: list[float] = []

    def look(self, now: float, silent_from: float = math.inf) -> None:
        shown = []
        for number, (phase, share) in enumerate(self.hosts):
            until = now if number == 0 else min(now, silent_from)
            at = math.floor(until - phase) + phase
            ok = max(0, round(RATE * share * at))
            name = f"host-{number}"
            seen = HostSeen(name, True, stats=stats({3: version_stats(ok=ok)}, time=at), counted_at=at)
            self.totals.add(name, seen.stats)
            shown.append(seen)
        if not self.meter.due(shown):
            return
        seen_of, elapsed_s = self.meter.read(shown, [TENANT], self.totals.of)
        if elapsed_s:
            self.looks.append(now)
            self.state = follow(self.state, seen_of, elapsed_s)
            self.rates.append(self.state.estimates[TENANT.name].qps)


@pytest.mark.parametrize(
    "hosts",
    [
        ((0.1, 1.0),),
        ((0.1, 0.5), (0.4, 0.5)),
        ((0.1, 0.5), (0.6, 0.5)),
        ((0.1, 0.9), (0.7, 0.1)),
        ((0.0, 0.2), (0.3, 0.3), (0.9, 0.5)),
    ],
)
def test_what_is_estimated_is_what_comes(hosts: tuple[tuple[float, float], ...]) -> None:
    there = Hosts(*hosts)
    for step in range(600):
        there.look(10.0 + step * LOOK_S)
    assert there.rates == pytest.approx([RATE] * len(there.rates), rel=0.005)
    assert len(there.rates) == pytest.approx(600 * LOOK_S, abs=3)


def test_a_host_that_counts_no_more_keeps_nobody_waiting_for_long() -> None:
    there = Hosts((0.1, 0.5), (0.6, 0.5))
    for step in range(600):
        there.look(10.0 + step * LOOK_S, silent_from=60.0)
    waits = [late - early for early, late in zip(there.looks, there.looks[1:], strict=False)]
    assert max(waits) <= PATIENCE_S + 2.0
    assert there.rates[-1] == pytest.approx(RATE / 2, rel=0.05)


def test_a_clock_that_was_set_back_tells_nothing() -> None:
    meter, totals = Meter(), Totals()
    for at, ok in ((100.0, 0), (50.0, 1000)):
        seen = HostSeen("host-0", True, stats=stats({3: version_stats(ok=ok)}, time=at), counted_at=at)
        totals.add("host-0", seen.stats)
        assert meter.due([seen])
        assert meter.read([seen], [TENANT], totals.of) == ({}, 0.0)
    assert not meter.due([seen])
