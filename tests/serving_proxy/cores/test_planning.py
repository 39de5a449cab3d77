# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from cost_model.control import ControlledTenant
from cost_model.control.state import pool_name
from cost_model.machine import Machine
from cost_model.profiling.profile import Profile
from serving_proxy.cores.planning import make_plan, pools_of_plan, profiled_us, resize_pools

SUBJECTS = [
    ControlledTenant("m/1", "baseline", 1000.0, 20.0, 2000.0),
    ControlledTenant("m/2", "variant", 1000.0, 20.0, 100.0),
    ControlledTenant("m/3", "variant", 1000.0, 20.0, 100.0),
]
RATES = {tenant.name: tenant.qps for tenant in SUBJECTS}


def _profile() -> Profile:
    made = Profile("f", "cpu")
    for rows in (1, 10, 100):
        made.add(1, rows, np.full(10, 100.0 + 10.0 * rows))
    return made


def test_a_plan_without_profiles_protects_the_baseline_and_pools_the_rest() -> None:
    made = make_plan(SUBJECTS, RATES, {}, Machine.even(8))
    assert made.feasible
    pools = pools_of_plan(made)
    assert [(pool.kind, pool.models) for pool in pools] == [("baseline", ("m/1",)), ("pool", ("m/2", "m/3"))]
    assert sum(len(pool.cores) for pool in pools) == 8
    assert len(pools[0].cores) > len(pools[1].cores)


def test_with_a_profile_the_requests_have_the_rows_that_explain_their_time() -> None:
    table = _profile().service
    assert profiled_us(table) == pytest.approx(200.0)
    made = make_plan(SUBJECTS, RATES, {"m/1": table}, Machine.even(8))
    assert made.workload.model("m/1").rows.mean == pytest.approx(90)
    assert made.allocation("m/1").predicted["m/1"].utilisation == pytest.approx(
        2.0 / len(made.allocation("m/1").cores), 0.05
    )


def test_pools_of_the_controller_get_what_the_plan_gives_their_models() -> None:
    made = make_plan(SUBJECTS, RATES, {}, Machine.even(8))
    pools = resize_pools(made, [("baseline", ("m/1",)), ("tight", ("m/2",)), ("pool", ("m/3",))], ())
    assert all(pool.cores for pool in pools)
    assert abs(len(pools[0].cores) - len(made.allocation("m/1").cores)) <= 1


@pytest.mark.parametrize("cores", [1, 2, 3, 4])
def test_pools_of_a_plan_are_called_what_the_controller_calls_them(cores: int) -> None:
    several = [
        *(ControlledTenant(f"{name}/1", "baseline", 1000.0, 20.0, 100.0) for name in "abc"),
        *(ControlledTenant(f"{name}/2", "variant", 1000.0, 20.0, 100.0) for name in "abc"),
    ]
    pools = pools_of_plan(make_plan(several, {tenant.name: tenant.qps for tenant in several}, {}, Machine.even(cores)))
    assert [pool.name for pool in pools if pool.kind == "baseline"] == [
        pool_name(pool.kind, pool.models) for pool in pools if pool.kind == "baseline"
    ]
    assert len({pool.name for pool in pools}) == len(pools)
    assert sorted(core for pool in pools for core in pool.cores) == list(range(cores))
