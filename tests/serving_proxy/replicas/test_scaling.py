# SPDX-License-Identifier: Apache-2.0
"""How many replicas the planner wants."""

from __future__ import annotations

from typing import Any

import pytest

from serving_proxy.cores.tenants import DeployedTenant
from serving_proxy.counters.windows import Totals
from serving_proxy.replicas.scaling import KEPT_S, Load, PlannedScale, Sample, loads_between, replicas_for

TENANT = DeployedTenant("a/1", "a", 1, "baseline", 50.0, "/models/1")


def load(rate: float, service_us: float = 5000.0) -> Load:
    return Load(TENANT, rate, service_us)


def test_replicas_grow_with_the_traffic() -> None:
    counts = [replicas_for([load(rate)], 4, 2, 100)[0] for rate in (1.0, 400.0, 800.0, 4000.0, 8000.0)]
    assert counts == sorted(counts)
    assert counts[0] == 2
    # 8,000 requests of 5 ms keep 40 cores busy, and need more than 10 replicas of 4, of which one may be missing.
    assert 12 <= counts[-1] <= 20


def test_larger_replicas_are_fewer() -> None:
    assert replicas_for([load(4000.0)], 16, 2, 100)[0] < replicas_for([load(4000.0)], 4, 2, 100)[0]


def test_limits_are_kept_and_named() -> None:
    assert replicas_for([], 4, 3, 5) == (3, "no requests")
    count, reason = replicas_for([load(1e6)], 4, 2, 5)
    assert count == 5
    assert "needs more than 5 replicas" in reason
    # One model alone may have an SLO that no number of cores meets.
    assert 2 <= replicas_for([load(10.0, 200_000.0)], 4, 2, 9)[0] <= 9


class Machine:
    """A host whose counters grow."""

    def __init__(self) -> None:
        self.now, self.requests, self.used_s = 0.0, 0, 0.0
        self.totals = Totals()
        self.loading = False
        statistics, loading, clock = (lambda: [self.stats()]), (lambda: self.loading), (lambda: self.now)
        self.scale = PlannedScale(lambda: [TENANT], self.totals, statistics, loading, 1, (2, 50), 0, clock)
        self.totals.add("host", self.stats())

    def stats(self) -> dict[str, Any]:
        count = self.requests
        run = {"count": count, "mean": 5000.0, "m2": 0.0, "max": 5000.0}
        version = {
            "outcomes": {"OK": count},
            "run_us": run,
            "duration_us": {"count": count, "buckets": [[5000.0, count]]},
            "batch_requests": {"count": count, "mean": 1.0},
        }
        return {"time": self.now, "models": {"a": {"versions": {"1": version}}}}

    def sample(self, cpu_s: dict[str, float]) -> Sample:
        """Return a reading of all counters."""
        return Sample(self.now, {TENANT.name: self.totals.of(("a", 1))}, cpu_s)

    def serve(self, rate: int, seconds: int, cpu_s: float = 0.0) -> int:
        """Serve for a while with this CPU time a second besides runs, and return the number that is wanted then."""
        for _ in range(seconds):
            self.now += 1.0
            self.requests += rate
            self.totals.add("host", self.stats())
            self.used_s += rate * 5e-3 + cpu_s
            self.scale.wanted({"replica-0": self.used_s})
        return self.scale.wanted({"replica-0": self.used_s})[0]


def test_number_grows_at_once_and_falls_later() -> None:
    machine = Machine()
    assert machine.scale.wanted({})[0] == 2
    most = machine.serve(1000, 40)
    assert most > 6
    assert machine.serve(10, int(KEPT_S / 2)) == most
    assert machine.serve(10, int(KEPT_S)) == 2


def test_work_of_hosts_besides_models_counts() -> None:
    machine = Machine()
    before = machine.sample(cpu_s={"replica-0": 5.0, "replica-1": 90.0})
    machine.serve(100, 10)
    # The second replica was started again, and counts from 0.
    (found,) = loads_between([TENANT], before, machine.sample(cpu_s={"replica-0": 12.0, "replica-1": 1.0}), {})
    assert found.rate == pytest.approx(100.0)
    # 7 s of CPU time for 1,000 requests, of which models ran for 5 s.
    assert found.service_us == pytest.approx(7000.0)
    (found,) = loads_between([TENANT], before, machine.sample(cpu_s={}), {"a/1": 2.0})
    assert found.service_us == pytest.approx(2500.0)


def test_loading_a_version_is_no_work_of_requests() -> None:
    machine = Machine()
    assert machine.serve(10, 20) == 2
    machine.loading = True
    assert machine.serve(10, 20, cpu_s=1.0) == 2
    machine.loading = False
    assert machine.serve(10, 60) == 2
    # The same without loading: each request costs 100 ms more.
    assert machine.serve(10, 40, cpu_s=1.0) > 2


def test_number_of_the_proxy_before_counts_at_first() -> None:
    scale = PlannedScale(list, Totals(), list, bool, 4, (2, 50), before=7)
    assert scale.wanted({})[0] == 7
    assert PlannedScale(list, Totals(), list, bool, 4, (2, 5), before=7).wanted({})[0] == 5
