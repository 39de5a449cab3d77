# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from cost_model.errors import UsageError
from cost_model.interference import Interference
from cost_model.machine import Machine
from cost_model.planning import explain, plan
from cost_model.planning.planner import sizing_for
from cost_model.workload import RowDistribution, ServiceTime, Tenant, Workload

MODELS = (
    Tenant("base", "baseline", ServiceTime(1000, 0, 0.5), RowDistribution.constant(1), 10, qps=3000.0),
    Tenant("v0", "variant", ServiceTime(1000, 0, 0.5), RowDistribution.constant(1), 10, qps=500.0),
    Tenant("v1", "variant", ServiceTime(20_000, 0, 0.5), RowDistribution.constant(1), 10, qps=5.0),
)


def planned(cores: int, models: tuple[Tenant, ...] = MODELS[:2]) -> Workload:
    return Workload(Machine.even(cores), models)


def test_curve_and_value_of_a_core_agree_with_plans() -> None:
    made = plan(planned(8), interference=Interference(0, 0, 0))
    told = explain(made, "base")
    has = len(told.allocation.cores)
    assert told.demand_cores == pytest.approx(3.0, rel=0.01)
    assert told.need is not None
    assert told.need <= has
    here = told.at(has)
    assert here is not None
    assert here.p99_ms == pytest.approx(told.predicted.p99_ms)
    growth = [point.growth for point in told.curve]
    assert growth == sorted(growth)
    assert [point.meets for point in told.curve] == [point.cores >= told.need for point in told.curve]
    assert told.why[0].startswith("A baseline")
    assert any(sentence.startswith("One core less: p99") for sentence in told.why)
    assert any(sentence.startswith("One core more: p99") for sentence in told.why)


def test_last_core_that_an_slo_needs_is_explained() -> None:
    wide = plan(planned(12), interference=Interference(0, 0, 0))
    enough = sum(explain(wide, name).need or 0 for name in ("base", "v0"))
    made = plan(planned(enough), interference=Interference(0, 0, 0))
    told = explain(made, "base")
    assert told.need == len(told.allocation.cores)
    assert any(sentence == f"The SLOs need {told.need} cores; it has exactly that many." for sentence in told.why)
    assert any("its SLOs would be missed" in sentence for sentence in told.why)


def test_slo_that_no_plan_meets_is_explained() -> None:
    made = plan(planned(8, MODELS), interference=Interference(0, 0, 0))
    told = explain(made, "v1")
    assert told.need is None
    assert any("even on idle cores" in sentence for sentence in told.why)


def test_shortage_of_cores_is_explained() -> None:
    made = plan(planned(3), interference=Interference(0, 0, 0))
    told = explain(made, "base")
    assert told.need is not None
    assert any(sentence == f"The SLOs need {told.need} cores; 2 are left for it." for sentence in told.why)


def test_reason_for_own_cores_is_explained() -> None:
    base, v0 = MODELS[:2]
    only = explain(plan(planned(8)), "v0").why[0]
    assert only == "The only variant that could share cores."
    third = replace(v0, name="v2")
    dedicated = explain(plan(planned(8, (base, replace(v0, dedicated=True), third))), "v0").why[0]
    assert dedicated == "Dedicated: it has its own cores."
    two = plan(planned(8, (base, v0, third)))
    assert explain(two, "v0").why[0].startswith("Shares ")
    assert explain(two, "v0").why[0].endswith(" with 1 other, because their peaks even out.")
    short = replace(v0, name="short", service=ServiceTime(50, 0, 0.5), slo_p99_ms=2)
    long = replace(v0, name="long", service=ServiceTime(20_000, 0, 0.5), slo_p99_ms=200, qps=100.0)
    assert (
        explain(plan(planned(12, (base, short, long))), "short")
        .why[0]
        .startswith("It has its own cores: together with")
    )


@pytest.mark.parametrize("parallel", [0.0, 0.8])
def test_growth_in_the_explanation_equals_growth_in_the_plan(parallel: float) -> None:
    # Sessions of several threads on two nodes leave cores unused, which do not count.
    models = tuple(
        replace(member, service=ServiceTime(500, 25, 0.5, parallel), rows=RowDistribution.lognormal(80, 0.9, 400))
        for member in MODELS[:2]
    )
    made = plan(Workload(Machine.even(26, numa_nodes=2), models), interference=Interference(0.2, 0, 0))
    for allocation in made.allocations:
        told = explain(made, allocation.models[0])
        here = told.at(len(allocation.cores))
        assert here is not None
        assert (here.growth, here.sessions, here.threads_per_session) == (
            allocation.growth, allocation.sessions, allocation.threads_per_session,
        )  # fmt: skip
        assert here.p99_ms == told.predicted.p99_ms


def test_growth_does_not_depend_on_earlier_calls() -> None:
    made = plan(planned(12))
    growth = {cores: sizing_for(made, ["base"], made.qps).growth(cores) for cores in (4, 5, 8, 11)}
    asked = sizing_for(made, ["base"], made.qps)
    for scale in (0.37, 1.0, 1.93):
        asked.need(scale)
    assert {cores: asked.growth(cores) for cores in (11, 4, 8, 5)} == growth


def test_unknown_model_is_refused() -> None:
    with pytest.raises(UsageError, match="nobody: no such model found in the plan"):
        explain(plan(planned(8)), "nobody")
