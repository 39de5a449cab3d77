# SPDX-License-Identifier: Apache-2.0
"""Make a plan: baselines first, variants pooled, spare cores where they help most."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from cost_model.errors import MachineError, WorkloadError
from cost_model.interference import Interference, default_interference
from cost_model.machine import Machine
from cost_model.memory import memory_use
from cost_model.planning.allocation import Allocation, Plan
from cost_model.planning.partition import split
from cost_model.planning.placement import place
from cost_model.planning.sharing import share_cores
from cost_model.planning.sizing import Sizing
from cost_model.queueing import Member
from cost_model.queueing.pool import LATE, bandwidth_bytes_per_s
from cost_model.workload import MOST_QPS, Tenant, Workload

_MOST_POOLS = 4
# Difference of memory contention between nodes above which pools are sized once more.
_UNEVEN = 0.01
# A pool whose traffic can still grow by this factor on one node stays there.
_AMPLE = 2.0
# Try a split at slightly more than the growth without it: there one pool lacks a core that two pools may save.
_BEYOND = 1.03
# Fraction of requests with guessed service times above which a note is printed: as many as may be late.
_EXTRAPOLATED = 0.01


def plan(
    workload: Workload,
    machine: Machine | None = None,
    qps_by_model: Mapping[str, float] | None = None,
    interference: Interference | None = None,
) -> Plan:
    """Decide which model gets which cores.

    Baselines and variants marked `dedicated` get cores of their own. The other variants share one pool, or a few pools
    if that needs fewer cores. Baselines first get the cores that their SLO needs. If all SLOs can be met, cores are
    divided so that traffic can grow as far as possible (`cost_model.planning.sharing`).

    Parameters
    ----------
    workload : Workload
    machine : Machine, optional
        Replaces the workload's machine.
    qps_by_model : mapping of str to float [requests/s], optional
        Rates to plan for; by default those of the workload at level 1. Models that it omits receive no requests.
    interference : Interference, optional
        By default the measured coefficients.

    Returns
    -------
    plan : Plan
        If an SLO cannot be met, the plan says so (`feasible`, `reasons`), and baselines have the cores that they need
        as far as there are enough; variants share the rest.

    Raises
    ------
    MachineError
        If no machine is given.
    WorkloadError
        If a rate is negative or not finite, or belongs to an unknown model.
    """
    there = machine or workload.machine
    if there is None:
        raise MachineError("machine: none found, expected one in the workload or as an argument")
    rates = _checked_rates(workload, workload.qps_by_model() if qps_by_model is None else qps_by_model)
    costs = default_interference() if interference is None else interference
    members = [Member(model, rates[model.name]) for model in workload.models]
    used = bandwidth_bytes_per_s(members) / 1e9 / (len(there.nodes) * there.memory_bandwidth_gbs_per_node)
    factor = costs.bandwidth_factor(used)
    pools, counts = _make_pools(members, there, costs, factor)
    chosen = _choose_cores(pools, counts, there)
    worst = max(costs.bandwidth_factor(part) for part in _node_utilisation(pools, chosen, there).values())
    if worst > factor * (1 + _UNEVEN):
        factor = worst
        pools, counts = _make_pools(members, there, costs, factor)
        chosen = _choose_cores(pools, counts, there)
    allocations = tuple(allocate(pool, cores, there) for pool, cores in zip(pools, chosen, strict=True))
    reasons = reasons_of(pools, allocations, there)
    feasible = all(predicted.meets for allocation in allocations for predicted in allocation.predicted.values())
    memory = memory_use([(model.name, model.memory) for model in workload.models], there)
    if memory is not None and memory.lacking:
        feasible, reasons = False, (*reasons, memory.lacking)
    return Plan(workload, there, rates, costs, allocations, feasible, reasons, factor, memory)


def sizing_for(made: Plan, names: Sequence[str], rates: Mapping[str, float]) -> Sizing:
    """Return models of a plan's workload as a pool with the slow-downs of the plan."""
    members = [Member(made.workload.model(name), rates[name]) for name in names]
    return Sizing(members, made.interference, made.memory_factor, len(made.machine.cores))


def sizing_of(made: Plan, allocation: Allocation) -> Sizing:
    """Return the pool of an allocation."""
    return sizing_for(made, allocation.models, made.qps)


def _checked_rates(workload: Workload, rates: Mapping[str, float]) -> dict[str, float]:
    names = {model.name for model in workload.models}
    for name, rate in rates.items():
        if name not in names:
            raise WorkloadError(f"qps of {name}: no such model found, expected a model of the workload")
        if not 0 <= rate <= MOST_QPS:
            raise WorkloadError(f"qps of {name}: {rate} found, expected a number from 0 to {MOST_QPS:g}")
    return {model.name: float(rates.get(model.name, 0.0)) for model in workload.models}


def _make_pools(
    members: Sequence[Member], machine: Machine, costs: Interference, factor: float
) -> tuple[list[Sizing], list[int]]:
    """Make pools and return them with their numbers of cores."""
    cores = len(machine.cores)

    def make(some: Sequence[Member]) -> Sizing:
        return Sizing(some, costs, factor, cores)

    own = [make([member]) for member in members if member.model.role == "baseline"]
    own += [make([member]) for member in members if member.model.role != "baseline" and member.model.dedicated]
    common = [member for member in members if member.model.role != "baseline" and not member.model.dedicated]
    if cores < len(own) + bool(common):
        return _pools_for_few_cores(members, make, cores)
    pools = [*own, make(common)] if common else own
    counts = divide_cores(pools, cores)
    if common:
        pools, counts = _split_common_pool(pools, counts, len(own), make, cores)
    return pools, counts


def _pools_for_few_cores(members: Sequence[Member], make: object, cores: int) -> tuple[list[Sizing], list[int]]:
    """Make at most two pools, if there are fewer cores than models that want their own."""
    assert callable(make)
    baselines = [member for member in members if member.model.role == "baseline"]
    variants = [member for member in members if member.model.role != "baseline"]
    groups = [list(members)] if cores == 1 else [group for group in (baselines, variants) if group]
    pools = [make(group) for group in groups]
    return pools, divide_cores(pools, cores)


def _split_common_pool(
    pools: list[Sizing], counts: list[int], own: int, make: object, cores: int
) -> tuple[list[Sizing], list[int]]:
    """Split the common pool, and the resulting pools, as long as that saves cores."""
    assert callable(make)
    scale = min(pool.growth(count) for pool, count in zip(pools, counts, strict=True))
    if not math.isfinite(scale):
        return pools, counts
    beyond = scale * _BEYOND or 1.0
    parts: list[Sizing] = []
    left = pools[own:]
    while left:
        pool = left.pop(0)
        # A model that cannot meet its SLO in this pool leaves it, regardless of the number of pools.
        room = (cores - own if pool.crowded else min(_MOST_POOLS, cores - own)) - len(parts) - len(left)
        halves = split(pool, beyond, make) if room > 1 else [pool]
        if len(halves) == 1:
            parts += halves
        else:
            left = halves + left
    if len(parts) == 1:
        return pools, counts
    pools = [*pools[:own], *parts]
    return pools, divide_cores(pools, cores)


def divide_cores(pools: Sequence[Sizing], cores: int) -> list[int]:
    """Divide cores among pools: first the need of baselines, then the need of the others, then the remaining cores.

    Every pool has at least one core; there are at least as many cores as pools.
    """
    first = [place for place, pool in enumerate(pools) if pool.is_baseline]
    others = [place for place, pool in enumerate(pools) if not pool.is_baseline]
    needs = [pool.need() for pool in pools]
    if sum(needs) <= cores:
        return share_cores(pools, cores, needs, 1.0)
    counts = [1] * len(pools)
    available = cores - len(others)
    if sum(needs[place] for place in first) <= available:
        for number in first:
            counts[number] = needs[number]
        rest = cores - sum(counts[number] for number in first)
        if others:
            for number, count in zip(others, _divide_scarce_cores([pools[n] for n in others], rest), strict=True):
                counts[number] = count
    else:
        for number, count in zip(first, _divide_scarce_cores([pools[n] for n in first], available), strict=True):
            counts[number] = count
    return counts


def _divide_scarce_cores(pools: Sequence[Sizing], cores: int) -> list[int]:
    """Divide too few cores: meet as many SLOs as possible, and divide by load otherwise."""
    return share_cores(pools, cores, [1] * len(pools))


def allocate(pool: Sizing, cores: tuple[int, ...], machine: Machine) -> Allocation:
    """Divide cores into sessions that each lie on one node, and predict the latency of the pool's models."""
    return allocation_for(pool, cores_per_node(cores, machine), cores)


def cores_per_node(cores: Sequence[int], machine: Machine) -> list[int]:
    """Return the number of cores on each node that has some."""
    return list(Counter(machine.cores[core].node for core in cores).values())


def allocation_for(pool: Sizing, parts: Sequence[int], cores: tuple[int, ...] = ()) -> Allocation:
    """Return the allocation of a pool for these numbers of cores per node."""
    sessions, threads = pool.best_sessions(parts)
    predicted = pool.pool.predict(sessions, threads)
    # Leftover cores of a node are usable if sessions have one core, and useless otherwise.
    return Allocation(pool.names, cores, sessions, threads, predicted, pool.growth(sessions * threads))


def _choose_cores(pools: Sequence[Sizing], counts: Sequence[int], machine: Machine) -> list[tuple[int, ...]]:
    """Choose cores; cores that a pool gives up to stay on a node go to the pool there with the smallest growth."""
    chosen = place(machine, counts, lambda number: pools[number].need(_AMPLE))
    free = set(range(len(machine.cores))).difference(*chosen) if sum(counts) == len(machine.cores) else set()
    for core in sorted(free):
        node = machine.cores[core].node
        there = [
            number for number, cores in enumerate(chosen) if {machine.cores[owned].node for owned in cores} == {node}
        ]
        if there:
            poorest = min(there, key=lambda number: pools[number].growth(len(chosen[number])))
            chosen[poorest] = tuple(sorted((*chosen[poorest], core)))
    return chosen


def _node_utilisation(pools: Sequence[Sizing], chosen: Sequence[tuple[int, ...]], machine: Machine) -> dict[int, float]:
    """Return the memory traffic of each node divided by its bandwidth; a pool's traffic is where its cores are."""
    used = dict.fromkeys(machine.nodes, 0.0)
    for pool, cores in zip(pools, chosen, strict=True):
        each = bandwidth_bytes_per_s(pool.members) / 1e9 / machine.memory_bandwidth_gbs_per_node / len(cores)
        for core in cores:
            used[machine.cores[core].node] += each
    return used


def disturbed_text(model: Tenant) -> str:
    """Describe how busy the machine was when a model was profiled; return "" if it was quiet or was not watched."""
    if not (share := model.service.disturbed):
        return ""
    return f"its profile was measured while others used {share:.0%} of the CPUs: its service times may be too long"


def reasons_of(pools: Sequence[Sizing], allocations: Sequence[Allocation], machine: Machine) -> tuple[str, ...]:
    """Return why SLOs are missed with the cores of each pool, and other notes for the reader."""
    notes = list(machine.notes)
    for pool, allocation in zip(pools, allocations, strict=True):
        for model in (member.model for member in pool.members):
            outside = model.service.outside(model.rows)
            if outside > _EXTRAPOLATED:
                notes.append(
                    f"{model.name}: its profile does not cover the rows of {outside:.0%} of its requests; their "
                    "service times are guessed"
                )
            if busy := disturbed_text(model):
                notes.append(f"{model.name}: {busy}")
            if (late := pool.late_alone.get(model.name)) is not None:
                notes.append(
                    f"{model.name}: about {late:.1%} of its requests take longer than {model.slo_p99_ms:g} ms even on "
                    f"idle cores, and only {LATE:.0%} may; no allocation meets its SLO"
                )
        for name in pool.crowded:
            notes.append(f"{name}: misses its SLO only because of switches between models; it needs a pool of its own")
        need = pool.need()
        count, used = len(allocation.cores), allocation.sessions * allocation.threads_per_session
        if need > count:
            what = f"at least {need} cores" if need > pool.most else f"{need} cores"
            notes.append(f"{allocation.name}: needs {what} and has {count}")
        elif need > used:
            notes.append(
                f"{allocation.name}: needs {need} cores, and {used} of its {count} make sessions that stay on a node"
            )
        shared = [m.model.name for m in pool.members if m.model.role == "baseline" or m.model.dedicated]
        if shared and len(pool.members) > 1:
            notes.append(f"{', '.join(shared)}: no cores of their own, because there are only {len(machine.cores)}")
    if any(pool.is_baseline and any(m.model.role != "baseline" for m in pool.members) for pool in pools):
        notes.append("baseline and variants share the only core: the baseline cannot be protected")
    if any(pool.pool.interference.guessed for pool in pools):
        notes.append("coefficients of interference: guessed, because no measured ones are installed")
    return tuple(notes)
