# SPDX-License-Identifier: Apache-2.0
"""Try out a new model: whether it fits, how many cores it needs, and which allocations would give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cost_model.errors import UsageError
from cost_model.planning.allocation import Allocation, Plan
from cost_model.planning.planner import allocate, plan, reasons_of, sizing_for
from cost_model.planning.sizing import Sizing
from cost_model.workload import Tenant


@dataclass(frozen=True)
class Addition:
    """Describe the result of trying out a model.

    Parameters
    ----------
    name : str
    verdict : "fits", "needs_cores" or "does_not_fit"
    sentence : str
        The verdict as a sentence.
    cores : int
        Number of cores that would have to move to the allocation of the new model.
    taken_from : dict of str to int
        For each allocation, the cores that it would give.
    before, after : Plan
        `after` is the plan with the model: if possible, `before` with the model in a pool and those cores moved.
    """

    name: str
    verdict: str
    sentence: str
    cores: int
    taken_from: dict[str, int]
    before: Plan
    after: Plan


def plan_addition(before: Plan, model: Tenant, qps: float) -> Addition:
    """Decide whether a model with this rate fits into a plan, and make the plan with it.

    It *fits* if it can join a pool without moving a core. Otherwise it joins a pool or gets cores of its own, whichever
    needs the fewest more cores; these come from the allocations with the most growth left. If no allocation can give
    them, the machine is planned from scratch. In all cases the model must meet its SLO, and so must all models that met
    theirs before.

    Raises
    ------
    UsageError
        If a model of that name exists.
    WorkloadError
        If the rate is negative or not finite.
    """
    if model.name in before.qps:
        raise UsageError(f"{model.name}: found in the plan already, expected a new name")
    workload = replace(before.workload, models=(*before.workload.models, replace(model, share=None, qps=qps)))
    rates = {**before.qps, model.name: qps}
    replanned = plan(workload, before.machine, rates, before.interference)
    if replanned.memory is not None and replanned.memory.lacking:
        sentence = f"does not fit, because there is too little memory: {replanned.memory.lacking}"
        return Addition(model.name, "does_not_fit", sentence, 0, {}, before, replanned)
    for place, pool, cores in _possible_homes(before, replanned, model):
        given = _cores_to_give(before, replanned, place, cores)
        after = _move_cores(before, replanned, place, pool, given) if given is not None else None
        if after is not None and _keeps_slos(before, after, model.name):
            taken = {before.allocations[place].name: count for place, count in (given or {}).items()}
            if cores == 0:
                others = _count_text(len(pool.names) - 1, "model")
                sentence = (
                    f"fits: joins {others} on their {_count_text(len(after.allocation(model.name).cores), 'core')}"
                )
            else:
                sentence = f"needs {_count_text(cores, 'core')}, taken from {_list_cores(taken)}"
            verdict = "fits" if cores == 0 else "needs_cores"
            return Addition(model.name, verdict, sentence + _note_on_missed_slos(before), cores, taken, before, after)
    taken = _cores_lost(before, replanned)
    cores = sum(taken.values())
    if _keeps_slos(before, replanned, model.name):
        verdict, sentence = (
            "needs_cores",
            f"needs a new division of all cores; cores would move from: {_list_cores(taken)}",
        )
    else:
        verdict, sentence = "does_not_fit", f"does not fit, because {_reason(before, replanned, model)}"
    return Addition(model.name, verdict, sentence + _note_on_missed_slos(before), cores, taken, before, replanned)


def _possible_homes(before: Plan, replanned: Plan, model: Tenant) -> list[tuple[int | None, Sizing, int]]:
    """Return the possible homes of the model, ordered by fewest additional cores, then by most growth.

    Each is an allocation's index (None: cores of its own), its pool with the model, and the number of missing cores.
    """
    own = {tenant.name for tenant in before.workload.models if tenant.role == "baseline" or tenant.dedicated}
    places: list[int | None] = [None]
    if model.role != "baseline" and not model.dedicated:
        places += [
            place for place, allocation in enumerate(before.allocations) if not own.intersection(allocation.models)
        ]
    found = []
    for place in places:
        there = before.allocations[place] if place is not None else None
        pool = sizing_for(replanned, (*(there.models if there else ()), model.name), replanned.qps)
        lost = set(_models_over_slo(before)) if there else set()
        need = pool.need()
        if need <= pool.most and lost.issuperset((*pool.late_alone, *pool.crowded)):
            has = len(there.cores) if there else 0
            found.append((place, pool, max(0, need - has), -pool.growth(max(need, has))))
    return [(place, pool, cores) for place, pool, cores, _ in sorted(found, key=lambda home: home[2:])]


def _cores_to_give(before: Plan, replanned: Plan, to: int | None, cores: int) -> dict[int, int] | None:
    """Return how many cores each allocation gives, repeatedly from the one with the most growth; None if impossible."""
    pools = {
        place: sizing_for(replanned, allocation.models, replanned.qps)
        for place, allocation in enumerate(before.allocations)
        if place != to
    }
    left = {place: len(before.allocations[place].cores) for place in pools}
    growth = {place: pool.growth(left[place] - 1) if left[place] > 1 else 0.0 for place, pool in pools.items()}
    given: dict[int, int] = {}
    for _ in range(cores):
        richest = max(growth, key=lambda place: growth[place], default=None)
        if richest is None or growth[richest] < 1:
            return None
        given[richest] = given.get(richest, 0) + 1
        left[richest] -= 1
        growth[richest] = pools[richest].growth(left[richest] - 1) if left[richest] > 1 else 0.0
    return given


def _move_cores(before: Plan, replanned: Plan, to: int | None, pool: Sizing, given: Mapping[int, int]) -> Plan:
    """Return the plan before, with cores moved to the pool of the new model; nothing else changes."""
    nodes = {before.machine.cores[core].node for core in (before.allocations[to].cores if to is not None else ())}
    gained: list[int] = []
    allocations: list[Allocation] = []
    pools = [
        pool if place == to else sizing_for(replanned, allocation.models, replanned.qps)
        for place, allocation in enumerate(before.allocations)
    ]
    for place, (allocation, there) in enumerate(zip(before.allocations, pools, strict=True)):
        if place in given:
            # Prefer cores that are near their new pool.
            order = sorted(allocation.cores, key=lambda core: (before.machine.cores[core].node in nodes, core))
            gained += order[-given[place] :]
            allocations.append(allocate(there, tuple(sorted(order[: -given[place]])), before.machine))
        elif place == to or replanned.memory_factor == before.memory_factor:
            allocations.append(allocation)
        else:
            # The new model may have made memory slower.
            predicted = there.pool.predict(allocation.sessions, allocation.threads_per_session)
            growth = there.growth(allocation.sessions * allocation.threads_per_session)
            allocations.append(replace(allocation, predicted=predicted, growth=growth))
    if to is None:
        pools.append(pool)
        allocations.append(allocate(pool, tuple(sorted(gained)), before.machine))
    else:
        allocations[to] = allocate(pool, tuple(sorted((*before.allocations[to].cores, *gained))), before.machine)
    reasons = reasons_of(pools, allocations, before.machine)
    feasible = all(predicted.meets for allocation in allocations for predicted in allocation.predicted.values())
    return replace(replanned, allocations=tuple(allocations), feasible=feasible, reasons=reasons)


def _models_over_slo(plan: Plan) -> list[str]:
    """Return the models that miss their SLO."""
    return [
        name
        for allocation in plan.allocations
        for name, predicted in allocation.predicted.items()
        if not predicted.meets
    ]


def _keeps_slos(before: Plan, after: Plan, name: str) -> bool:
    """Return whether the new model, and every model that met its SLO before, meets its SLO."""
    return name not in _models_over_slo(after) and set(_models_over_slo(before)).issuperset(_models_over_slo(after))


def _cores_lost(before: Plan, after: Plan) -> dict[str, int]:
    """Return how many cores allocations have lost; pools whose members change are counted together."""
    old = {frozenset(allocation.models): len(allocation.cores) for allocation in before.allocations}
    taken, rest = {}, sum(old.values())
    for allocation in after.allocations:
        had = old.get(frozenset(allocation.models))
        if had is None:
            rest -= 0 if len(allocation.models) == 1 else len(allocation.cores)
            continue
        rest -= had
        if had > len(allocation.cores):
            taken[allocation.name] = had - len(allocation.cores)
    if rest > 0:
        taken["the variants' pools"] = rest
    return taken


def _reason(before: Plan, replanned: Plan, model: Tenant) -> str:
    if model.name in sizing_for(replanned, [model.name], replanned.qps).late_alone:
        mean_ms = model.points().mean / 1e3
        return (
            f"its requests (mean {mean_ms:.1f} ms) take longer than {model.slo_p99_ms:g} ms in "
            "more than 1 of 100 cases even on idle cores"
        )
    need = sum(
        sizing_for(replanned, allocation.models, replanned.qps).need(most=1 << 14)
        for allocation in replanned.allocations
    )
    if need > len(replanned.machine.cores):
        return f"all SLOs together need {need} cores, and there are {len(replanned.machine.cores)}"
    newly_late = [name for name in _models_over_slo(replanned) if name not in _models_over_slo(before)]
    return f"no division of the cores meets the SLOs of {_first_names(newly_late)}"


def _note_on_missed_slos(before: Plan) -> str:
    """Describe the models that miss their SLO without the new one."""
    late = _models_over_slo(before)
    return (
        f" ({_first_names(late)} {'misses its SLO' if len(late) == 1 else 'miss their SLOs'} even without it)"
        if late
        else ""
    )


def _first_names(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _list_cores(taken: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in taken.items()) or "none"


def _count_text(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
