# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cost_model.errors import UsageError, WorkloadError
from cost_model.interference import Interference
from cost_model.machine import Machine
from cost_model.planning import Plan, plan, plan_addition
from cost_model.planning.planner import sizing_of
from cost_model.workload import RowDistribution, ServiceTime, Tenant, Workload

COSTS = Interference(0.05, 0.1, 0.3)


def model(name: str, mean_us: float = 1000, slo_ms: float = 10, role: str = "variant") -> Tenant:
    return Tenant(name, role, ServiceTime(mean_us, 0, 0.5), RowDistribution.constant(1), slo_ms, qps=1.0)


@pytest.fixture
def before() -> Plan:
    workload = Workload(Machine.even(12), (model("base", role="baseline"), model("v0"), model("v1")))
    return plan(workload, None, {"base": 3000, "v0": 500, "v1": 500}, COSTS)


def test_small_model_fits_without_moving_cores(before: Plan) -> None:
    answer = plan_addition(before, model("new"), 50)
    assert answer.verdict == "fits"
    assert answer.sentence == f"fits: joins 2 models on their {len(before.allocation('v0').cores)} cores"
    assert answer.taken_from == {}
    assert answer.after.feasible
    for name in ("base", "v0"):
        assert answer.after.allocation(name).cores == before.allocation(name).cores
    assert "new" in answer.after.allocation("v0").models


def test_larger_model_takes_cores_from_the_baseline(before: Plan) -> None:
    answer = plan_addition(before, model("new"), 3500)
    assert answer.verdict == "needs_cores"
    assert answer.after.feasible
    taken = len(before.allocation("base").cores) - len(answer.after.allocation("base").cores)
    assert taken > 0
    assert answer.taken_from == {"base": taken}
    assert answer.cores == taken
    assert answer.sentence == f"needs {taken} core{'s' * (taken > 1)}, taken from base ({taken})"


@pytest.mark.parametrize("qps", [2200, 2600, 3500])
def test_added_model_asks_for_no_more_cores_than_needed(before: Plan, qps: float) -> None:
    answer = plan_addition(before, model("new"), qps)
    assert answer.verdict == "needs_cores"
    pool = answer.after.allocation("new")
    sizing = sizing_of(answer.after, pool)
    assert answer.cores == len(pool.cores) - len(before.allocation("v0").cores)
    # One core less is not enough.
    assert sizing.meets(len(pool.cores))
    assert not sizing.meets(len(pool.cores) - 1)


def test_models_that_missed_their_slo_before_do_not_block_a_new_one() -> None:
    workload = Workload(Machine.even(12), (model("base", role="baseline"), model("slow", mean_us=9500), model("v0")))
    before = plan(workload, None, {"base": 3000, "slow": 10, "v0": 500}, COSTS)
    assert not before.feasible
    answer = plan_addition(before, model("new"), 20)
    assert answer.verdict == "fits"
    assert answer.sentence.endswith("(slow misses its SLO even without it)")
    assert answer.after.allocation("new").predicted["new"].meets
    assert not answer.after.feasible
    assert any(
        " of its requests take longer than 10 ms even on idle cores" in reason for reason in answer.after.reasons
    )
    assert plan_addition(before, model("new"), 20_000).verdict == "does_not_fit"


def test_rate_beyond_the_machine_does_not_fit_and_reports_the_cores_needed(before: Plan) -> None:
    answer = plan_addition(before, model("new"), 20_000)
    assert answer.verdict == "does_not_fit"
    assert answer.sentence.startswith("does not fit, because all SLOs together need ")
    assert answer.sentence.endswith("cores, and there are 12")
    assert answer.after.allocation("base").predicted["base"].meets


def test_model_with_an_slo_that_no_plan_meets_does_not_fit(before: Plan) -> None:
    answer = plan_addition(before, model("new", mean_us=9000), 1)
    assert answer.verdict == "does_not_fit"
    assert "(mean 9.0 ms) take longer than 10 ms" in answer.sentence


def test_added_dedicated_model_gets_its_own_cores(before: Plan) -> None:
    answer = plan_addition(before, replace(model("new"), dedicated=True), 100)
    assert answer.verdict == "needs_cores"
    assert answer.after.allocation("new").models == ("new",)


def test_bad_additions_are_refused(before: Plan) -> None:
    with pytest.raises(UsageError, match="v0: found in the plan already"):
        plan_addition(before, model("v0"), 1)
    with pytest.raises(WorkloadError, match="qps of new"):
        plan_addition(before, model("new"), math.nan)
