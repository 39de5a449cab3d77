# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from cost_model.interference import NONE, Interference
from cost_model.queueing import Member, Pool
from cost_model.service import RowDistribution, ServiceTime
from cost_model.simulation.slices import simulate_sessions
from cost_model.simulation.validation import predict_sessions
from cost_model.workload import Tenant

ONE = RowDistribution.constant(1)


def model(name: str, mean_us: float, qps: float, cv: float = 0.3) -> Tenant:
    return Tenant(name, "variant", ServiceTime(mean_us, 0.0, cv), ONE, 50.0, qps=qps)


@pytest.mark.parametrize(("cores", "idle_start_us"), [(1, 0.0), (1, 400.0), (2, 0.0)])
def test_single_model_behaves_like_a_queue(cores: int, idle_start_us: float) -> None:
    costs = Interference(0.0, 0.0, 0.0, idle_start_us=idle_start_us)
    load = model("a", 1000.0, 700.0 * cores)
    expected = Pool([Member(load, load.qps or 0.0)], costs).predict(cores)["a"]
    found = predict_sessions([load], cores, seconds=200, interference=costs)["a"]
    assert found.p50_ms == pytest.approx(expected.p50_ms, rel=0.08)
    assert found.p99_ms == pytest.approx(expected.p99_ms, rel=0.08)
    assert found.throughput_qps == pytest.approx(700 * cores, rel=0.02)


def test_short_time_slices_approach_processor_sharing() -> None:
    """Models that hardly ever have two requests are processor sharing, whose mean is S/(1 - rho) for any S."""
    models = [model(str(number), 1000.0, 10.0, cv=1.0) for number in range(60)]
    times = np.concatenate(simulate_sessions(models, 1, 100, 1, NONE, slice_us=20.0))
    assert times.mean() == pytest.approx(1000 / (1 - 0.6), rel=0.06)


def test_models_with_little_traffic_wait_less_than_busy_ones() -> None:
    busy, seldom = model("busy", 1000.0, 650.0), model("seldom", 1000.0, 150.0)
    found = predict_sessions([busy, seldom], 1, seconds=200)
    queue = Pool([Member(tenant, tenant.qps or 0.0) for tenant in (busy, seldom)], NONE).predict(1)
    assert found["seldom"].p99_ms < 0.8 * queue["seldom"].p99_ms
    assert found["busy"].p99_ms > queue["busy"].p99_ms


def test_switch_cost_applies_after_another_model_ran() -> None:
    pair = [model("a", 1000.0, 200.0, cv=0.0), model("b", 1000.0, 200.0, cv=0.0)]
    costs = Interference(0.5, 0.0, 0.0)
    alone = simulate_sessions(pair[:1], 1, 50, 1, costs)[0]
    assert alone.min() == pytest.approx(1000)
    both = np.concatenate(simulate_sessions(pair, 1, 50, 1, costs))
    assert both.min() == pytest.approx(1000)
    assert np.quantile(both, 0.4) >= 1499


def test_long_requests_end_despite_switch_costs() -> None:
    """Three slices' worth of work, and switches that cost more than a slice gives."""
    pair = [model("long", 9000.0, 30.0), model("short", 1000.0, 300.0)]
    times = simulate_sessions(pair, 1, 20, 1, Interference(0.35, 0.0, 0.0))
    assert len(times[0]) == pytest.approx(600, rel=0.15)


def test_model_without_traffic_causes_no_division_by_zero() -> None:
    found = predict_sessions([model("a", 1000.0, 100.0), model("b", 1000.0, 0.0)], 1, seconds=5)
    assert found["b"].throughput_qps == 0
    assert found["a"].throughput_qps == pytest.approx(100, rel=0.2)
