# SPDX-License-Identifier: Apache-2.0
"""Check policies with a pool of threads for each model, which take turns on the cores."""

from __future__ import annotations

import pytest

from cost_model.interference import NONE
from cost_model.machine import Machine
from cost_model.service import RowDistribution, ServiceTime
from cost_model.simulation.inputs import Piece, build_inputs
from cost_model.simulation.policies import (
    Dynamic,
    Fixed,
    Policy,
    baseline_pool_policy,
    fixed_assignment,
    shared_policy,
    time_sliced,
)
from cost_model.simulation.run import Result, simulate
from cost_model.simulation.slices import SLICE_US
from cost_model.simulation.validation import predict_sessions
from cost_model.workload import Tenant, Workload

ONE = RowDistribution.constant(1)


def model(name: str, mean_us: float, qps: float, slo_ms: float = 1000.0, role: str = "variant") -> Tenant:
    return Tenant(name, role, ServiceTime(mean_us, 0.0, 0.3), ONE, slo_ms, qps=qps)


def run(models: list[Tenant], cores: int, policy: Policy, seconds: int = 200) -> Result:
    machine, total = Machine.even(cores), sum(tenant.qps or 0.0 for tenant in models)
    inputs = build_inputs(Workload(machine, tuple(models), (), (1,), total))
    pieces = [Piece(float(end), 1.0, inputs.shares, inputs.mean_us * 0 + 1) for end in range(1, seconds + 1)]
    return simulate(inputs, machine, pieces, policy, total, 1, NONE)


def one_queue() -> Fixed:
    return Fixed(
        "queue", lambda inputs, machine, _: fixed_assignment(["all"], [0] * len(machine.cores), [0] * len(inputs.names))
    )


@pytest.mark.parametrize("cores", [1, 2])
def test_shared_hosts_agree_with_the_simulation_of_sessions(cores: int) -> None:
    models = [model("busy", 1500.0, 400.0 * cores), model("seldom", 1500.0, 60.0 * cores), model("long", 9000.0, 10.0)]
    found = {each.name: each for each in run(models, cores, shared_policy(), 400).models}
    for name, expected in predict_sessions(models, cores, seconds=400).items():
        assert found[name].p50_ms == pytest.approx(expected.p50_ms, rel=0.06), name
        assert found[name].p99_ms == pytest.approx(expected.p99_ms, rel=0.1), name


def test_long_requests_take_turns_with_short_ones() -> None:
    models = [model("short", 1000.0, 100.0), model("long", 60_000.0, 12.0)]
    queued, sliced = (run(models, 1, policy).models[0] for policy in (one_queue(), shared_policy()))
    assert queued.p99_ms > 60.0
    assert sliced.p99_ms < 3 * SLICE_US / 1000 + 5.0


def test_an_overloaded_model_has_only_its_threads() -> None:
    models = [model("short", 1000.0, 200.0), model("overloaded", 10_000.0, 400.0)]
    short, overloaded = run(models, 2, shared_policy()).models
    assert short.missed == 0.0
    assert short.p99_ms < 20.0
    assert overloaded.dropped > 0.3 * overloaded.arrived
    # The threads of the overloaded model keep the rest of both cores busy.
    assert short.cores + overloaded.cores == pytest.approx(2.0, abs=0.02)


@pytest.mark.parametrize("name", ["pool", "dynamic"])
def test_no_request_is_lost_by_turns(name: str) -> None:
    models = [
        model("base", 1500.0, 500.0, 15.0, "baseline"),
        model("a", 1500.0, 250.0, 15.0),
        model("b", 9000.0, 40.0, 90.0),
    ]
    workload = Workload(Machine.even(2), tuple(models), (), (1,), sum(each.qps or 0.0 for each in models))
    policy: Policy = baseline_pool_policy(workload, 1) if name == "pool" else Dynamic(workload)
    result = run(models, 2, time_sliced(policy))
    for each in result.models:
        assert 0 <= each.arrived - each.completed - each.dropped < 50
    assert result.utilisation <= 1.0


def test_a_pool_of_the_controller_without_a_core_uses_the_variants_core() -> None:
    """Two cores for three groups: the isolated variant must share, or it would be refused for ever."""
    models = [
        model("base", 1500.0, 200.0, 15.0, "baseline"),
        model("a", 1500.0, 100.0, 15.0),
        model("slow", 1500.0, 50.0, 15.0),
    ]
    machine, total = Machine.even(2), 350.0
    workload = Workload(machine, tuple(models), (), (1,), total)
    inputs = build_inputs(workload)
    pieces = []
    for end in range(1, 101):
        factor = inputs.mean_us * 0 + 1
        factor[2] = 12.0 if 20 < end <= 60 else 1.0
        pieces.append(Piece(float(end), 1.0, inputs.shares, factor))
    result = simulate(inputs, machine, pieces, time_sliced(Dynamic(workload)), total, 1, NONE)
    assert [each.name for each in result.unjudged] == ["slow"]
    assert result.models[2].missed < 0.1, "it is served again when it is quick again"
