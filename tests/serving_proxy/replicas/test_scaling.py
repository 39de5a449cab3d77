# SPDX-License-Identifier: Apache-2.0
"""How many replicas the planner wants."""

from __future__ import annotations

from typing import Any

from serving_proxy.cores.tenants import DeployedTenant
from serving_proxy.counters.windows import Totals
from serving_proxy.replicas.scaling import KEPT_S, Load, PlannedScale, replicas_for

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
        self.now, self.requests = 0.0, 0
        self.totals = Totals()
        self.scale = PlannedScale(
            lambda: [TENANT], self.totals, lambda: [self.stats()], 1, (2, 50), 0, lambda: self.now
        )
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

    def serve(self, rate: int, seconds: int) -> int:
        """Serve for a while, and return the number that is wanted then."""
        for _ in range(seconds):
            self.now += 1.0
            self.requests += rate
            self.totals.add("host", self.stats())
            self.scale.wanted()
        return self.scale.wanted()[0]


def test_number_grows_at_once_and_falls_later() -> None:
    machine = Machine()
    assert machine.scale.wanted()[0] == 2
    most = machine.serve(1000, 40)
    assert most > 6
    assert machine.serve(10, int(KEPT_S / 2)) == most
    assert machine.serve(10, int(KEPT_S)) == 2


def test_number_of_the_proxy_before_counts_at_first() -> None:
    scale = PlannedScale(list, Totals(), list, 4, (2, 50), before=7)
    assert scale.wanted()[0] == 7
    assert PlannedScale(list, Totals(), list, 4, (2, 5), before=7).wanted()[0] == 5
