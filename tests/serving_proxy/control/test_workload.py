# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from cost_model.fleet import make_problem, parse_fleet, place
from cost_model.workload import parse_workload
from helpers.proxies.lifecycle_records import deployed, settled
from serving_proxy.control.workload import measured_workload
from serving_proxy.counters.history import Point
from serving_proxy.counters.tally import Moments, Tally
from serving_proxy.records.hosts import HostSeen, VersionSeen


def points(*rates: float) -> list[Point]:
    return [(2.0 * number, rate, 0.0, None, None) for number, rate in enumerate(rates)]


def test_workload_has_the_rates_times_and_memory_that_were_measured() -> None:
    model = settled(deployed(settled(deployed(None, 3, slo_p99_ms=20.0)), 4, traffic=1000))
    idle = settled(deployed(None, 1)).change(name="idle")
    new = idle.change(name="new", baseline=None)
    details = {"memory_bytes": 2_000_000_000}
    seen = {3: VersionSeen("ready", details=details), 4: VersionSeen("ready", details={"memory_bytes": 500_000_000})}
    stats = {"models": {model.name: {"versions": {"4": {"batch_requests": {"mean": 2.0}}}}}}
    hosts = [HostSeen(f"{name}/h", True, machine=name, models={model.name: seen}, stats=stats) for name in ("a", "b")]
    tallies = {
        (model.name, 3): Tally(run=Moments(300, 300 * 800.0)),
        (model.name, 4): Tally(run=Moments(100, 100 * 2400.0)),
    }
    # The highest half minute is the last one.
    lines = {(model.name, 3): points(*[10.0] * 15, *[90.0] * 15), (model.name, 4): points(*[1.0] * 15, *[10.0] * 15)}
    models = {model.name: model, "idle": idle, "new": new}
    found = measured_workload(models, hosts, lines, lambda key: tallies.get(key, Tally()))
    first, second = sorted(found.workload["models"], key=lambda entry: entry["name"] != model.name)
    assert first["qps"] == pytest.approx(100.0)
    # 300 requests of 0.8 ms, and 50 runs of two requests each.
    assert first["fixed_us"] == pytest.approx((300 * 800 + 50 * 2400) / 400)
    assert (first["slo_p99_ms"], first["memory_gb"]) == (20.0, 2.5)
    assert (second["name"], second["qps"], second["fixed_us"]) == ("idle", 0.0, 1000.0)
    assert [note.partition(":")[0] for note in found.notes] == ["idle", "idle"]
    # It is a workload of the cost model.
    read = parse_workload(found.workload)
    fleet = parse_fleet({"machines": [{"group": "m", "count": 3, "cores": 4, "memory_gb": 16}]})
    made = place(make_problem(read, fleet, read.qps_by_model()))
    assert made.feasible
    assert len(made.machines_of(model.name)) >= 2
