# SPDX-License-Identifier: Apache-2.0
"""Try a model out: does it fit, what would it take, and from whom."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cost_model.errors import UsageError
from cost_model.planning.allocation import Allocation, Plan
from cost_model.planning.planner import plan, sizing_for
from cost_model.workload import ModelLoad


@dataclass(frozen=True)
class Addition:
    """The answer.

    Parameters
    ----------
    name : str
    verdict : "fits", "needs_cores" or "does_not_fit"
    sentence : str
        The verdict for a reader.
    cores : int
        That would have to move to the allocation of the new model.
    taken_from : dict of str to int
        Allocation: cores that it would give.
    before, after : Plan
        `after` is the plan with the model; if it fits, nothing but the members of one pool has changed.
    """

    name: str
    verdict: str
    sentence: str
    cores: int
    taken_from: dict[str, int]
    before: Plan
    after: Plan

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "cores": self.cores,
            "taken_from": self.taken_from,
        }


def plan_addition(before: Plan, model: ModelLoad, qps: float) -> Addition:
    """Say whether a model with this rate fits into a plan, and make the plan with it.

    It *fits* if it can join a pool (or, a variant of which there is no pool yet, nothing) without a core changing hands
    and every objective is still met. Else the machine is planned anew.

    Raises
    ------
    UsageError
        There is a model of that name.
    WorkloadError
        The rate is negative or not finite.
    """
    if model.name in before.qps:
        raise UsageError(f"{model.name}: is in the plan already, expected a new name")
    workload = replace(before.workload, models=(*before.workload.models, replace(model, share=None, qps=qps)))
    rates = {**before.qps, model.name: qps}
    after = plan(workload, before.machine, rates, before.interference)
    joined = _joined(before, after, model, rates)
    if joined is not None:
        where = joined.allocation(model.name)
        others = len(where.models) - 1
        sentence = (
            f"fits: joins {others} {'model' if others == 1 else 'models'} on {len(where.cores)} cores as they are"
        )
        return Addition(model.name, "fits", sentence, 0, {}, before, joined)
    taken = _taken(before, after, model.name)
    cores = sum(taken.values()) or len(after.allocation(model.name).cores)
    if not after.feasible:
        return Addition(model.name, "does_not_fit", _because(before, after, model), cores, taken, before, after)
    whom = ", ".join(f"{name} ({count})" for name, count in taken.items()) or "the pool that it joins"
    sentence = f"needs {_counted(cores, 'core')}, taken from {whom}"
    return Addition(model.name, "needs_cores", sentence, cores, taken, before, after)


def _joined(before: Plan, after: Plan, model: ModelLoad, rates: dict[str, float]) -> Plan | None:
    """Return the plan in which the model joins a pool whose cores stay as they are, if all objectives are met."""
    if model.role == "baseline" or model.dedicated or not before.feasible:
        return None
    names = {one.name: one for one in before.workload.models}
    shared = [
        place
        for place, one in enumerate(before.allocations)
        if all(names[name].role != "baseline" and not names[name].dedicated for name in one.models)
    ]
    best, place = None, -1
    for number in shared:
        grown = _grown(after, before.allocations[number], model.name, rates)
        if grown is not None and (best is None or grown.growth > best.growth):
            best, place = grown, number
    if best is None:
        return None
    changed = [best if at == place else _again(after, one, rates) for at, one in enumerate(before.allocations)]
    if not all(made.meets for one in changed for made in one.predicted.values()):
        return None
    return replace(after, allocations=tuple(changed), feasible=True, reasons=before.reasons)


def _grown(after: Plan, one: Allocation, name: str, rates: dict[str, float]) -> Allocation | None:
    """Return an allocation with a model more on the cores that it has, if all objectives are met."""
    pool = sizing_for(after, (*one.models, name), rates)
    cores = len(one.cores)
    if pool.hopeless or pool.crowded or not pool.meets(cores):
        return None
    threads = pool.best_threads(cores)
    sessions = cores // threads
    predicted = pool.pool.predict(sessions, threads)
    return Allocation(pool.names, one.cores, sessions, threads, predicted, pool.growth(cores))


def _again(after: Plan, one: Allocation, rates: dict[str, float]) -> Allocation:
    """Predict an allocation anew: the new model may have made memory slower."""
    pool = sizing_for(after, one.models, rates)
    predicted = pool.pool.predict(one.sessions, one.threads_per_session)
    return replace(one, predicted=predicted)


def _taken(before: Plan, after: Plan, name: str) -> dict[str, int]:
    """Return what allocations have less than before; pools whose members change are taken together."""
    old = {frozenset(one.models): len(one.cores) for one in before.allocations}
    taken, rest = {}, sum(old.values())
    for one in after.allocations:
        had = old.get(frozenset(one.models))
        if had is None:
            rest -= 0 if one.models == (name,) else len(one.cores)
            continue
        rest -= had
        if had > len(one.cores):
            taken[_called(one)] = had - len(one.cores)
    if rest > 0:
        taken["the variants' pools"] = rest
    return taken


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _called(one: Allocation) -> str:
    return one.models[0] if len(one.models) == 1 else f"the pool of {one.models[0]}"


def _because(before: Plan, after: Plan, model: ModelLoad) -> str:
    own = sizing_for(after, after.allocation(model.name).models, after.qps)
    if model.name in own.hopeless:
        mean_ms = model.points().mean / 1e3
        return (
            f"does not fit, because its requests (mean {mean_ms:.1f} ms) take longer than {model.slo_p99_ms:g} ms in "
            "more than 1 of 100 cases on idle cores already"
        )
    if not before.feasible:
        return f"does not fit, because the plan without it is not feasible: {'; '.join(before.reasons)}"
    need = sum(sizing_for(after, one.models, after.qps).need(most=1 << 14) for one in after.allocations)
    return f"does not fit, because all objectives together need {need} cores and there are {len(after.machine.cores)}"
