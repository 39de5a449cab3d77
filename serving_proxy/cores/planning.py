# SPDX-License-Identifier: Apache-2.0
"""A plan of the cost model for the deployed versions, and the pools that follow from it. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cost_model.control import ControlledTenant, Pool
from cost_model.control.state import pool_name
from cost_model.control.targets import Grouping, hand_out
from cost_model.machine import Machine
from cost_model.planning import Plan, plan
from cost_model.service import RowDistribution, ServiceTable, ServiceTime
from cost_model.workload import Tenant, Workload

# Coefficient of variation of service times without a profile: that of exponential ones.
UNKNOWN_CV = 1.0


def make_plan(
    controlled: Sequence[ControlledTenant],
    rates: Mapping[str, float],
    profiles: Mapping[str, ServiceTable],
    machine: Machine,
) -> Plan:
    """Make a plan for these rates [requests/s].

    Without a profile, a version's service time has the observed mean and a coefficient of variation of 1. With a
    profile, its requests are assumed to have the number of rows whose profiled mean is the observed one.
    """
    loads = []
    for tenant in controlled:
        profile = profiles.get(tenant.name)
        service = ServiceTime(max(tenant.service_us, 1.0), 0.0, UNKNOWN_CV) if profile is None else profile
        rows = RowDistribution.constant(1 if profile is None else _rows(profile, tenant.service_us))
        loads.append(Tenant(tenant.name, tenant.role, service, rows, tenant.slo_ms, qps=rates.get(tenant.name, 0.0)))
    return plan(Workload(None, tuple(loads)), machine, {load.name: load.qps or 0.0 for load in loads})


def profiled_us(profile: ServiceTable) -> float:
    """Return the mean service time [us] of a request with the middle one of the measured numbers of rows."""
    return float(profile.mean_us([profile.rows[len(profile.rows) // 2]])[0])


def _rows(profile: ServiceTable, service_us: float) -> int:
    means = np.maximum.accumulate(profile.mean_us(profile.rows))
    return max(1, round(float(np.interp(service_us, means, profile.rows))))


def pools_of_plan(planned: Plan) -> tuple[Pool, ...]:
    """Return the pools of a plan unchanged."""
    pools = []
    variants = 0
    for allocation in planned.allocations:
        first = planned.workload.model(allocation.models[0])
        if first.role == "baseline":
            pools.append(
                Pool(pool_name("baseline", allocation.models), "baseline", allocation.models, allocation.cores)
            )
            continue
        variants += 1
        pools.append(Pool("pool" if variants == 1 else f"pool {variants}", "pool", allocation.models, allocation.cores))
    return tuple(pools)


def resize_pools(planned: Plan, grouped: Grouping, now: Sequence[Pool]) -> tuple[Pool, ...]:
    """Return the controller's pools with the numbers of cores that a plan gives their models, moving few cores."""
    place = {name: number for number, (_, models) in enumerate(grouped) for name in models}
    sizes = [0] * len(grouped)
    for allocation in planned.allocations:
        sizes[place[allocation.models[0]]] += len(allocation.cores)
    for number, size in enumerate(sizes):
        largest = max(range(len(sizes)), key=sizes.__getitem__)
        if not size and sizes[largest] > 1:
            sizes[largest] -= 1
            sizes[number] = 1
    return hand_out(grouped, sizes, tuple(range(len(planned.machine.cores))), now)
