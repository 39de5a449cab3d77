# SPDX-License-Identifier: Apache-2.0
"""Check whole simulations: policies, judgment, capacity, schedules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cost_model.errors import UsageError, WorkloadError
from cost_model.interference import NONE, Interference
from cost_model.machine import Machine
from cost_model.planning import plan
from cost_model.service import RowDistribution, ServiceTable, ServiceTime
from cost_model.simulation.capacity import best_split, capacity, make_policy, search, traffic_bound_qps
from cost_model.simulation.inputs import alias_table, build_inputs, schedule
from cost_model.simulation.policies import POLICIES, Dynamic, static_policy
from cost_model.simulation.run import Result, simulate
from cost_model.simulation.study import Row, capacities, compare
from cost_model.simulation.validation import predict_small
from cost_model.traffic import Traffic
from cost_model.workload import Tenant, Workload

COSTS = Interference(0.06, 0.1, 0.35, 0.6)


def run(workload: Workload, kind: str, name: str, qps: float, **options: object) -> Result:
    assert workload.machine is not None
    inputs = build_inputs(workload)
    (traffic,) = (candidate for candidate in workload.traffic if candidate.name == kind)
    policy = make_policy(name, workload, workload.machine, COSTS)
    pieces = schedule(workload, traffic, 1)
    return simulate(inputs, workload.machine, pieces, policy, qps, 1, COSTS, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_meets_low_load_and_fails_overload(small: Workload, policy: str) -> None:
    low = run(small, "steady", policy, 3000)
    assert low.met, low.worst
    high = run(small, "steady", policy, 30_000, stop_early=True)
    assert not high.met
    assert high.stopped_s is not None
    assert low.arrived == pytest.approx(90_000, rel=0.02)


def test_runs_are_equal_for_equal_seeds(small: Workload) -> None:
    first, second = (run(small, "moving", "dynamic", 9000) for _ in range(2))
    assert first.models == second.models
    assert first.moves == second.moves


def test_policies_see_the_same_requests(small: Workload) -> None:
    arrived = [[model.arrived for model in run(small, "bursts", name, 7000).models] for name in ("shared", "dynamic")]
    assert arrived[0] == arrived[1]


def test_schedule_follows_the_traffic(small: Workload) -> None:
    steady, bursts, moving, slow = (schedule(small, traffic, 1) for traffic in small.traffic)
    assert {piece.level for piece in steady} == {1.0}
    assert {piece.level for piece in bursts} == {0.5, 1.5}
    assert bursts[-1].end_s == pytest.approx(60)
    assert len({tuple(piece.shares) for piece in moving}) == 6
    for piece in moving:
        assert piece.shares.sum() == pytest.approx(1)
        assert piece.shares[0] == pytest.approx(0.6)
    assert {round(piece.end_s) for piece in slow if piece.factor[3] == 20} == set(range(11, 41))


def test_alias_table_draws_with_the_given_weights() -> None:
    weights = np.array([0.5, 0.0, 0.2, 0.3])
    share, other = alias_table(weights.copy())
    drawn = np.zeros(4)
    for place in range(4):
        drawn[place] += share[place] / 4
        drawn[other[place]] += (1 - share[place]) / 4
    assert drawn == pytest.approx(weights)


def test_broken_variant_is_not_judged_and_others_are(small: Workload) -> None:
    result = run(small, "slow", "dynamic", 6000)
    slow = next(model for model in result.models if model.name == "variant-2")
    assert slow.dropped > 100
    assert result.met, result.worst
    assert any("isolated" in move.reason for _, move in result.moves)
    assert not run(small, "slow", "baseline-pool", 6000).met


def test_dynamic_keeps_cores_whole(small: Workload) -> None:
    result = run(small, "moving", "dynamic", 9000)
    for _, owned in result.owners:
        assert set(owned.core_owner) == set(range(len(owned.labels)))
        assert set(owned.group_of) == set(range(len(owned.labels)))


def test_search_finds_the_highest_passing_rate() -> None:
    tried = []

    def evaluate(qps: float) -> Result:
        tried.append(qps)
        return Result("x", qps, qps <= 1234, (), 1, 1)

    found = search(evaluate, 10, 1000, 5000, 0.005)
    assert found.qps <= 1234 < found.failed_qps
    assert found.failed_qps - found.qps <= 0.005 * found.failed_qps
    assert found.runs == len(tried) < 12
    assert search(lambda qps: Result("x", qps, False, (), 1, 1), 10, 1000, 5000, 0.01).qps == 0


def test_dynamic_is_not_below_baseline_pool(small: Workload) -> None:
    assert small.machine is not None
    rows = capacities(small, small.machine, ["baseline-pool", "dynamic"], [1], COSTS, part=0.01, jobs=1)
    assert len(rows) == 8
    for comparison in compare(rows, "dynamic", "baseline-pool"):
        # Whole cores are an eighth of this machine, and the search stops within 1 %.
        assert comparison.least >= 0.97, comparison
    for row in rows:
        assert row.qps <= 1.02 * row.bound_qps, row


def test_comparison_pairs_equal_seeds() -> None:
    def row(policy: str, seed: int, qps: float) -> Row:
        return Row("steady", policy, seed, 1.0, qps, 1, 1, 1.0, 1.0)

    (comparison,) = compare([row("a", 1, 200.0), row("a", 2, 100.0), row("b", 1, 100.0), row("b", 2, 200.0)], "a", "b")
    assert (comparison.mean, comparison.least) == (1.0, 0.5)


def test_best_split_gives_the_baseline_its_share(small: Workload) -> None:
    assert small.machine is not None
    assert 3 <= best_split(small, small.machine, COSTS, 4.0) <= 6


def test_static_needs_a_core_for_each_model(small: Workload) -> None:
    with pytest.raises(UsageError, match="static: 4 cores found, expected at least 5"):
        make_policy("static", small, Machine.even(4), NONE)
    with pytest.raises(UsageError, match="baseline-pool: 1 cores found, expected at least 2"):
        make_policy("baseline-pool", small, Machine.even(1), NONE)
    assert set(static_policy().start(build_inputs(small), Machine.even(5), 1000).core_owner) == set(range(5))


def alone_on(cores: int, *models: Tenant) -> Workload:
    return Workload(Machine.even(cores), models, (Traffic("steady", "poisson", 60.0),))


def steady(workload: Workload, policy: str, qps: float) -> Result:
    assert workload.machine is not None
    pieces = schedule(workload, workload.traffic[0], 1)
    made = make_policy(policy, workload, workload.machine, NONE)
    return simulate(build_inputs(workload), workload.machine, pieces, made, qps, 1, NONE)


def test_planned_policy_uses_the_threads_of_the_plan() -> None:
    rows = RowDistribution.constant(1)
    load = Tenant("base", "baseline", ServiceTime(0, 10_000, 0.2, parallel=0.95), rows, 12, qps=300.0)
    workload = alone_on(12, load)
    (allocation,) = plan(workload, interference=NONE).allocations
    assert allocation.threads_per_session == 2
    expected = allocation.predicted["base"]
    assert expected.meets
    planned, static = (steady(workload, name, 300.0) for name in ("planned", "static"))
    assert planned.met
    assert planned.models[0].p99_ms == pytest.approx(expected.p99_ms, rel=0.1)
    # With one thread per session, most SLOs are missed.
    assert not static.met


def test_planned_policy_plans_for_the_simulated_rates() -> None:
    rows, service = RowDistribution.constant(1), ServiceTime(1000, 0, 0.3)
    models = [Tenant(name, role, service, rows, 10, qps=100.0) for name, role in (("a", "baseline"), ("b", "variant"))]
    workload = alone_on(8, models[0], replace(models[1], qps=300.0))
    assert steady(workload, "planned", 4000).met
    mixed = replace(workload, models=(models[0], replace(models[1], qps=None, share=1.0)))
    with pytest.raises(WorkloadError, match="b: a share of an unknown total"):
        build_inputs(mixed)
    assert build_inputs(replace(mixed, total_qps=300.0)).shares.tolist() == [0.25, 0.75]
    with pytest.raises(WorkloadError, match="rates with the sum 0 found"):
        build_inputs(alone_on(2, replace(models[0], qps=0.0)))


def test_model_that_misses_much_alone_is_served_by_no_policy() -> None:
    rows = RowDistribution.constant(1)
    models = [Tenant(f"m{ms}", "variant", ServiceTime(1000 * ms, 0, 0.5), rows, 9.0, qps=1.0) for ms in (1, 4, 9)]
    inputs = build_inputs(alone_on(8, *models))
    assert inputs.allowed[0] == 0.01
    assert 0.02 < inputs.alone[1] < 0.1
    assert inputs.allowed[1] == pytest.approx(min(0.1, 2 * inputs.alone[1]))
    assert inputs.alone[2] > 0.3
    assert inputs.allowed[2] == 0.1
    assert inputs.unserved == ("m9",)
    result = steady(alone_on(8, *models), "shared", 30.0)
    assert not result.met
    assert [model.met for model in result.models] == [True, True, False]
    (row,) = capacities(alone_on(8, *models), Machine.even(8), ["shared"], [1], NONE, part=0.05, jobs=1)
    assert (row.qps, row.binding) == (0, "m9")


def test_bound_of_steady_traffic_equals_cores_divided_by_work(small: Workload) -> None:
    assert small.machine is not None
    inputs = build_inputs(small)
    bound = traffic_bound_qps(inputs, small.machine, schedule(small, small.traffic[0], 1))
    assert bound == pytest.approx(8e6 / inputs.demand_us / 0.99, rel=0.001)


def test_box128_runs_at_half_of_its_load(box128: Workload) -> None:
    for kind in ("steady", "slow-variant"):
        result = run(box128, kind, "dynamic", 24_000)
        assert sum(not model.met for model in result.models) == 0, result.worst


def test_interference_lowers_capacity(small: Workload) -> None:
    assert small.machine is not None
    inputs = build_inputs(small)
    found = [
        capacity(small, small.machine, small.traffic[0], make_policy("shared", small, small.machine, NONE), 1,
                 Interference(0.2 * scale, 0.1 * scale, 0.0), inputs=inputs).qps
        for scale in (0.0, 1.0, 2.0)
    ]  # fmt: skip
    assert found[0] > 1.05 * found[1] > 1.05 * 1.05 * found[2]


def test_small_scenario_from_a_measured_table_agrees_with_its_distribution() -> None:
    levels = tuple(np.linspace(0, 1, 101).tolist())
    times = tuple((500 + 1000 * np.array(levels)).tolist())
    table = ServiceTable((1,), (1,), levels, ((times,),))
    rows = RowDistribution.constant(1)
    loads = [
        Tenant("a", "baseline", table, rows, 50.0, qps=500.0),
        Tenant("b", "variant", ServiceTime(1000, 0, 0), rows, 50.0, qps=600.0),
    ]
    found = predict_small(loads, Machine.even(2), {"a": [0], "b": [1]}, seconds=400)
    # Pollaczek and Khinchine: uniform from 0.5 to 1.5 ms at half load, and constant at 0.6.
    assert found["a"].mean_ms == pytest.approx(1 + 0.5 / 0.5 / 2 * (1 + 1 / 12), rel=0.03)
    assert found["b"].mean_ms == pytest.approx(1 + 0.6 / 0.4 / 2, rel=0.03)
    assert found["a"].throughput_qps == pytest.approx(500, rel=0.02)
    together = predict_small(loads, Machine.even(2), None, seconds=400)
    assert together["a"].mean_ms < found["a"].mean_ms
    with pytest.raises(ValueError, match="overlap"):
        predict_small(loads, Machine.even(2), {"a": [0], "b": [0, 1]}, seconds=1)


def test_controller_keeps_the_baseline_while_a_variant_floods() -> None:
    rows = RowDistribution.constant(1)
    loads = [
        Tenant("a", "baseline", ServiceTime(1000, 0, 0.3), rows, 20.0, qps=500.0),
        Tenant("b", "variant", ServiceTime(1000, 0, 0.3), rows, 20.0, qps=3000.0),
    ]
    found = predict_small(loads, Machine.even(2), None, seconds=30, dynamic=True)
    assert found["a"].p99_ms < 8
    assert found["a"].dropped == 0
    assert found["b"].dropped > 10_000


def test_dynamic_without_lending_still_meets_low_load(small: Workload) -> None:
    assert small.machine is not None
    inputs = build_inputs(small)
    policy = Dynamic(small, lending=False)
    result = simulate(inputs, small.machine, schedule(small, small.traffic[0], 1), policy, 4000, 1, COSTS)
    assert result.met
    assert sum(model.borrowed_cores for model in result.models) == 0
