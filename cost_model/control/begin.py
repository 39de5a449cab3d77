# SPDX-License-Identifier: Apache-2.0
"""Start control from a plan or from expected rates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from cost_model.control.state import ControlledTenant, ControlState, Estimate, Kind, Pool, Settings, pool_name
from cost_model.control.targets import initial_pools


def begin(
    cores: Sequence[int],
    tenants: Iterable[ControlledTenant],
    pools: Sequence[tuple[Kind, tuple[str, ...], tuple[int, ...]]] | None = None,
    settings: Settings | None = None,
    overrides: Mapping[str, int] | None = None,
) -> ControlState:
    """Start control from a plan.

    Parameters
    ----------
    cores : sequence of int
        Indices of the machine's cores, with neighboring cores next to each other.
    tenants : iterable of ControlledTenant
    pools : sequence of (kind, models, cores), optional
        The plan; by default the controller makes one from the expected rates.
    settings : Settings, optional
    overrides : mapping of pool or model to cores, optional
    """
    known = {tenant.name: tenant for tenant in tenants}
    settings = settings or Settings()
    estimates = {tenant.name: Estimate(tenant.qps, tenant.service_us, tenant.service_us) for tenant in known.values()}
    fixed = dict(overrides or {})
    if pools is None:
        initial = initial_pools(tuple(cores), known, estimates, settings, fixed)
    else:
        initial = tuple(Pool(pool_name(kind, models), kind, models, owned) for kind, models, owned in pools)
    baseline = sum(len(pool.cores) for pool in initial if pool.kind == "baseline")
    floor = max(1, math.floor(settings.floor_part * baseline)) if baseline else 0
    return ControlState(tuple(cores), known, initial, estimates, floor, settings, fixed)
