# SPDX-License-Identifier: Apache-2.0
r"""Compute how many cores each pool should own, and choose the cores.

A pool with demand :math:`d` busy cores needs about :math:`d + \beta\sqrt d` (Halfin and Whitt, Operations Research 29,
1981); the remaining cores are divided in proportion to that need. When there are too few cores, the need of the
baseline is met first and the variants divide the rest.

The demand includes arriving and waiting requests. Latency shows what neither of them shows: requests that arrive in
bursts or take very different times. A baseline whose requests are late therefore gets a larger :math:`\beta`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cost_model.control.state import ControlledTenant, Estimate, Kind, Pool, Settings, pool_name

SAFETY = 0.8
# Factor on beta if a baseline is late.
LATE_SAFETY = 3.0
Grouping = list[tuple[Kind, tuple[str, ...]]]


def group_models(
    tenants: Mapping[str, ControlledTenant],
    estimates: Mapping[str, Estimate],
    settings: Settings,
    now: Sequence[Pool] = (),
    isolated: frozenset[str] = frozenset(),
) -> Grouping:
    """Decide which models share cores: baselines, variants that need their own cores, isolated models, the rest."""
    own_now = {model for pool in now if pool.kind == "own" for model in pool.models}
    baselines = tuple(name for name, tenant in tenants.items() if tenant.role == "baseline")
    grouped: Grouping = [("baseline", baselines)] if baselines else []
    rest = []
    for name, tenant in tenants.items():
        if tenant.role == "baseline":
            continue
        earns = settings.own_cores * (0.5 if name in own_now else 1.0)
        if name in isolated:
            grouped.append(("isolated", (name,)))
        elif estimates[name].cores >= earns:
            grouped.append(("own", (name,)))
        else:
            rest.append(name)
    # In one queue the shortest SLO applies to all, so models with a much shorter SLO get a queue of their own.
    loosest = max((tenants[name].slo_ms for name in rest), default=0.0)
    tight = tuple(name for name in rest if tenants[name].slo_ms < settings.tight_part * loosest)
    usual = tuple(name for name in rest if name not in tight)
    return [*grouped, *((kind, models) for kind, models in _pools(tight, usual) if models)]


def _pools(tight: tuple[str, ...], usual: tuple[str, ...]) -> Grouping:
    return [("tight", tight), ("pool", usual)]


def need(demand: float, late: float = 0.0) -> float:
    """Return the cores that keep waiting short for a demand [cores]; `late` is 0 (waiting is short now) to 1."""
    return demand + SAFETY * (1 + (LATE_SAFETY - 1) * late) * math.sqrt(max(demand, 0.0))


def load_of(
    kind: Kind, models: Sequence[str], estimates: Mapping[str, Estimate], settings: Settings
) -> tuple[float, float]:
    """Return the demand of models that share cores, with waiting requests [cores], and the lateness of a baseline.

    Lateness is 0 to 1. For an isolated model, the usual demand counts instead of the present one.
    """
    found = [estimates[name] for name in models]
    if kind == "isolated":
        return sum(estimate.usual_cores for estimate in found), 0.0
    qps = sum(estimate.qps for estimate in found)
    late = sum(estimate.late * estimate.qps for estimate in found) / qps if kind == "baseline" and qps else 0.0
    return sum(estimate.pressure for estimate in found), min(1.0, late / settings.late_part)


def target_sizes(
    grouped: Grouping,
    estimates: Mapping[str, Estimate],
    cores: int,
    floor: int,
    overrides: Mapping[str, int],
    settings: Settings,
) -> list[int]:
    """Return a whole number of cores per pool; the sum is `cores`, each pool has at least one if there are enough."""
    needs = [need(*load_of(kind, models, estimates, settings)) for kind, models in grouped]
    fixed = {
        place: overrides[name]
        for place, (kind, models) in enumerate(grouped)
        for name in (pool_name(kind, models), *(models if len(models) == 1 else ()))
        if name in overrides
    }
    sizes = [0.0] * len(grouped)
    left = float(cores)
    for place, size in fixed.items():
        sizes[place] = min(left, float(size))
        left -= sizes[place]
    open_places = [place for place in range(len(grouped)) if place not in fixed]
    wanted = sum(needs[place] for place in open_places)
    least = [1] * len(grouped)
    for place in open_places:
        if grouped[place][0] == "baseline":
            fair = needs[place] * max(1.0, left / wanted) if wanted > 0 else left / len(open_places)
            most = left - (len(open_places) - 1)
            sizes[place] = min(most, max(fair, float(floor)))
            least[place] = max(1, min(floor, math.floor(most)))
            left -= sizes[place]
            wanted -= needs[place]
    open_places = [place for place in open_places if grouped[place][0] != "baseline"]
    spare = left / wanted if wanted > 0 else 0.0
    for place in open_places:
        sizes[place] = needs[place] * spare if wanted > 0 else left / len(open_places)
    return _whole(sizes, cores, fixed, least)


def _whole(sizes: Sequence[float], cores: int, fixed: Mapping[int, int], least: Sequence[int]) -> list[int]:
    """Round to whole cores with the given sum and the given minimum for each pool (largest remainder)."""
    whole = [max(low, math.floor(size + 1e-9)) for size, low in zip(sizes, least, strict=True)]
    order = sorted(range(len(sizes)), key=lambda place: sizes[place] - math.floor(sizes[place] + 1e-9), reverse=True)
    free = [place for place in order if place not in fixed] or order
    step = 0
    while sum(whole) < cores:
        whole[free[step % len(free)]] += 1
        step += 1
    while sum(whole) > cores:
        more = [place for place in free if whole[place] > least[place]]
        if not more:
            break
        whole[max(more, key=lambda place: whole[place])] -= 1
    return whole


def hand_out(grouped: Grouping, sizes: Sequence[int], cores: tuple[int, ...], now: Sequence[Pool]) -> tuple[Pool, ...]:
    """Assign cores to each pool, moving as few as possible.

    A pool keeps its cores, gives up its last ones first, and takes cores next to its own; the baseline takes from the
    low end of the machine, all others from the high end.
    """
    held = {pool.name: pool.cores for pool in now}
    owned: list[list[int]] = []
    taken: set[int] = set()
    for (kind, models), size in zip(grouped, sizes, strict=True):
        keep = [core for core in held.get(pool_name(kind, models), ()) if core not in taken][:size]
        owned.append(keep)
        taken |= set(keep)
    free = [core for core in cores if core not in taken]
    for place, (kind, _) in enumerate(grouped):
        lacking = sizes[place] - len(owned[place])
        while lacking > 0 and free:
            owned[place].append(free.pop(0 if kind == "baseline" else -1))
            lacking -= 1
    return tuple(
        # A lent core returns when the guest's request ends: too late for requests that are due in a few milliseconds.
        Pool(pool_name(kind, models), kind, models, tuple(mine), lends=kind != "tight", borrows=kind != "isolated")
        for (kind, models), mine in zip(grouped, owned, strict=True)
    )


def initial_pools(
    cores: tuple[int, ...],
    tenants: Mapping[str, ControlledTenant],
    estimates: Mapping[str, Estimate],
    settings: Settings,
    overrides: Mapping[str, int],
) -> tuple[Pool, ...]:
    """Create the initial pools from the expected rates."""
    grouped = group_models(tenants, estimates, settings)
    sizes = target_sizes(grouped, estimates, len(cores), 1, overrides, settings)
    return hand_out(grouped, sizes, cores, ())
