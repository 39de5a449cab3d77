# SPDX-License-Identifier: Apache-2.0
"""Compare predictions with a discrete-event simulation that shares only the service times with them."""

from __future__ import annotations

import heapq
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cost_model.interference import NONE, Interference
from cost_model.queueing import Member, Pool
from cost_model.workload import Tenant, load_workload

BOX = load_workload(Path(__file__).resolve().parents[3] / "cost_model" / "scenarios" / "box128.yaml")
REQUESTS = 250_000


def simulated(pool: Pool, servers: int, scale: float) -> dict[str, np.ndarray]:
    """Return the response times [µs] of each member, first come first served."""
    rng = np.random.default_rng(servers)
    rates = np.array([member.qps for member in pool.members]) * scale / 1e6
    which = rng.choice(len(rates), REQUESTS, p=rates / rates.sum())
    service = np.empty(REQUESTS)
    for place, member in enumerate(pool.members):
        own = which == place
        service[own] = member.model.service.sample(rng, member.model.rows.sample(rng, int(own.sum())))
    arrivals = np.cumsum(rng.exponential(1 / rates.sum(), REQUESTS))
    free = [0.0] * servers
    response = []
    for arrival, length in zip(arrivals.tolist(), service.tolist(), strict=True):
        cold_us = pool.cold_us if arrival >= free[0] else 0.0
        end = max(arrival, free[0]) + cold_us + length
        heapq.heapreplace(free, end)
        response.append(end - arrival)
    warm = np.arange(REQUESTS) > REQUESTS // 10
    times = np.array(response)
    return {m.model.name: times[warm & (which == place)] for place, m in enumerate(pool.members)}


def check(
    models: list[tuple[Tenant, float]],
    servers: int,
    utilisation: float,
    tolerance: float,
    costs: Interference = NONE,
) -> None:
    pool = Pool([Member(model, qps) for model, qps in models], costs)
    scale = utilisation * servers / pool.load()
    predicted = pool.predict(servers, scale=scale)
    for name, times in simulated(pool, servers, scale).items():
        assert predicted[name].p50_ms * 1e3 == pytest.approx(np.quantile(times, 0.5), rel=tolerance), name
        assert predicted[name].p99_ms * 1e3 == pytest.approx(np.quantile(times, 0.99), rel=tolerance), name
        assert predicted[name].utilisation == pytest.approx(utilisation)


@pytest.mark.parametrize("servers", [1, 2, 8, 60])
@pytest.mark.parametrize("utilisation", [0.3, 0.6, 0.8])
def test_prediction_of_one_model_agrees_with_simulation(servers: int, utilisation: float) -> None:
    check([(BOX.model("ranking"), 1.0)], servers, utilisation, 0.08)


@pytest.mark.parametrize("servers", [1, 2, 8])
@pytest.mark.parametrize("utilisation", [0.3, 0.7])
def test_prediction_with_cold_cores_agrees_with_simulation(servers: int, utilisation: float) -> None:
    check([(BOX.model("ranking"), 1.0)], servers, utilisation, 0.08, Interference(0.0, 0.0, 0.0, idle_start_us=1000.0))


@pytest.mark.parametrize("servers", [2, 8])
@pytest.mark.parametrize("utilisation", [0.3, 0.8])
def test_prediction_of_a_mixture_agrees_with_simulation(servers: int, utilisation: float) -> None:
    models = [(BOX.model("variant-0"), 3.0), (BOX.model("variant-29"), 1.0), (BOX.model("heavy-3"), 0.5)]
    check(models, servers, utilisation, 0.12)


def test_short_requests_behind_long_ones_are_not_underestimated() -> None:
    pool = Pool([Member(BOX.model("heavy-0"), 1.0), Member(BOX.model("recall-0"), 20.0)], NONE)
    scale = 0.8 * 8 / pool.load()
    measured = np.quantile(simulated(pool, 8, scale)["recall-0"], 0.99) / 1e3
    assert 0.85 * measured < pool.predict(8, scale=scale)["recall-0"].p99_ms < 1.8 * measured


def test_switch_cost_grows_with_the_share_of_other_models() -> None:
    few, many = Member(BOX.model("variant-0"), 1.0), Member(BOX.model("variant-1"), 9.0)
    alone, shared = Pool([few], Interference(switch=0.2)), Pool([few, many], Interference(switch=0.2))
    assert alone.factor(0) == 1.0
    assert shared.factor(0) == pytest.approx(1.18)
    assert shared.factor(1) == pytest.approx(1.02)
    assert shared.member_service(0).mean == pytest.approx(1.18 * alone.member_service(0).mean)


def test_late_part_agrees_with_the_quantile() -> None:
    pool = Pool([Member(BOX.model("ranking"), 2000.0)], NONE)
    p99_ms = pool.predict(6)["ranking"].p99_ms
    exact = Pool([Member(replace(BOX.model("ranking"), slo_p99_ms=p99_ms), 2000.0)], NONE)
    assert exact.predict(6)["ranking"].late == pytest.approx(0.01, abs=0.0015)


def test_model_without_traffic_is_predicted() -> None:
    predicted = Pool([Member(BOX.model("ranking"), 0.0)], NONE).predict(1)["ranking"]
    assert predicted.utilisation == 0
    assert predicted.mean_wait_ms == 0
    assert predicted.meets


def test_memory_traffic_slows_down_above_the_knee() -> None:
    costs = Interference(bandwidth=0.5, knee=0.6)
    assert costs.bandwidth_factor(0.5) == 1.0
    assert costs.bandwidth_factor(0.8) == pytest.approx(1.25)
    assert costs.bandwidth_factor(3.0) >= 3.0
    assert costs.scaled(2).bandwidth_factor(0.8) == pytest.approx(1.5)
