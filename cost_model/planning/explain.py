# SPDX-License-Identifier: Apache-2.0
"""Explain an allocation: the demand of a model, its curve, and the effect of one core more or less."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cost_model.planning.allocation import Allocation, Plan
from cost_model.planning.planner import allocation_for, cores_per_node, disturbed_text, sizing_of
from cost_model.planning.sizing import Sizing
from cost_model.queueing import Prediction
from cost_model.queueing.pool import LATE


@dataclass(frozen=True)
class CurvePoint:
    """Describe the effect of a number of cores.

    Parameters
    ----------
    cores : int
    sessions, threads_per_session : int
    p99_ms : float [ms]
        The p99 of the model that is explained; infinite if the model is overloaded.
    growth : float
        Factor by which the traffic of the allocation can grow.
    meets : bool
        Whether all models of the allocation meet their SLO.
    """

    cores: int
    sessions: int
    threads_per_session: int
    p99_ms: float
    growth: float
    meets: bool


@dataclass(frozen=True)
class Explanation:
    """Explain one model in a plan.

    Parameters
    ----------
    name : str
    allocation : Allocation
    demand_cores : float [cores]
        Cores that the model keeps busy on average; `demand_pool_cores` is the value for its whole pool.
    demand_pool_cores : float [cores]
    service_mean_ms, service_p99_ms : float [ms]
        On idle cores, including slow-downs by other models.
    need : int, optional [cores]
        Fewest cores with which its allocation meets its SLOs; None if no number does.
    curve : tuple of CurvePoint
        Points around the present number of cores.
    why : tuple of str
        Reasons, as sentences.
    """

    name: str
    allocation: Allocation
    demand_cores: float
    demand_pool_cores: float
    service_mean_ms: float
    service_p99_ms: float
    need: int | None
    curve: tuple[CurvePoint, ...]
    why: tuple[str, ...]

    @property
    def predicted(self) -> Prediction:
        return self.allocation.predicted[self.name]

    def at(self, cores: int) -> CurvePoint | None:
        """Return the point of the curve for a number of cores, or None if the curve does not contain it."""
        return next((point for point in self.curve if point.cores == cores), None)


def explain(made: Plan, name: str, around: int = 3) -> Explanation:
    """Explain the allocation of a model.

    Parameters
    ----------
    made : Plan
    name : str
    around : int [cores]
        How far the curve reaches on either side.

    Raises
    ------
    UsageError
        If the plan has no such model.
    """
    allocation = made.allocation(name)
    pool = sizing_of(made, allocation)
    place = pool.names.index(name)
    own = pool.pool.member_service(place)
    has = len(allocation.cores)
    need = pool.need(most=max(4 * has, 64))
    reachable = None if pool.late_alone or pool.crowded or need > max(4 * has, 64) else need
    wanted = sorted({*range(max(1, has - around), has + around + 1), *([reachable] if reachable else [])})
    lie = cores_per_node(allocation.cores, made.machine)
    # The point of the present number of cores repeats the plan's values, so that figures agree everywhere.
    curve = tuple(
        _point(name, cores, allocation if cores == has else allocation_for(pool, _parts(lie, cores)))
        for cores in wanted
    )
    return Explanation(
        name=name,
        allocation=allocation,
        demand_cores=pool.members[place].qps * own.mean / 1e6,
        demand_pool_cores=pool.load,
        service_mean_ms=own.mean / 1e3,
        service_p99_ms=own.quantile(0.99) / 1e3,
        need=reachable,
        curve=curve,
        why=tuple(_why(made, allocation, pool, name, reachable, curve)),
    )


def _parts(lie: Sequence[int], cores: int) -> list[int]:
    """Return cores per node for another total: the smallest parts shrink first, additional cores go to the largest."""
    parts, left = [], cores
    for there in sorted(lie, reverse=True):
        parts.append(min(there, left))
        left -= parts[-1]
    parts[0] += left
    return [part for part in parts if part]


def _point(name: str, cores: int, allocation: Allocation) -> CurvePoint:
    meets = all(predicted.meets for predicted in allocation.predicted.values())
    return CurvePoint(
        cores,
        allocation.sessions,
        allocation.threads_per_session,
        allocation.predicted[name].p99_ms,
        allocation.growth,
        meets,
    )


def _why(
    plan: Plan, allocation: Allocation, pool: Sizing, name: str, need: int | None, curve: tuple[CurvePoint, ...]
) -> list[str]:
    has, model = len(allocation.cores), plan.workload.model(name)
    reasons = [_sharing_reason(plan, allocation, name)]
    if busy := disturbed_text(model):
        reasons.append(f"{busy[0].upper()}{busy[1:]}.")
    if name in pool.late_alone:
        reasons.append(
            f"About {pool.late_alone[name]:.1%} of its requests take longer than {model.slo_p99_ms:g} ms even on idle "
            f"cores, and only {LATE:.0%} may: no allocation meets its SLO, so it is planned for a utilization of at "
            "most 80%."
        )
    elif name in pool.crowded:
        reasons.append("It misses its SLO only because of switches between models: it needs a pool of its own.")
    elif need is None:
        reasons.append("No number of cores that this machine could have meets the SLOs of its allocation.")
    elif need > has:
        reasons.append(f"The SLOs need {_cores(need)}; {has} are left for it.")
    elif need == has:
        reasons.append(f"The SLOs need {_cores(need)}; it has exactly that many.")
    else:
        reasons.append(
            f"The SLOs need {_cores(need)}; it has {has - need} more, because no other allocation gains more from them."
        )
    now = next(point for point in curve if point.cores == has)
    less = next((point for point in curve if point.cores == has - 1), None)
    more = next((point for point in curve if point.cores == has + 1), None)
    if less:
        effect = "its SLOs would be missed" if now.meets and not less.meets else _change(now, less)
        reasons.append(f"One core less: p99 {_ms(less.p99_ms)} instead of {_ms(now.p99_ms)}; {effect}.")
    if more:
        effect = "its SLOs would be met" if more.meets and not now.meets else _change(now, more)
        reasons.append(f"One core more: p99 {_ms(more.p99_ms)}; {effect}.")
    return reasons


def _sharing_reason(plan: Plan, allocation: Allocation, name: str) -> str:
    """Explain why a model has its own cores or shares them."""
    model, others = plan.workload.model(name), len(allocation.models) - 1
    if others:
        more = "1 other" if others == 1 else f"{others} others"
        return f"Shares {_cores(len(allocation.cores))} with {more}, because their peaks even out."
    if model.role == "baseline":
        return "A baseline: it has its own cores, and gets what it needs before any variant."
    if model.dedicated:
        return "Dedicated: it has its own cores."
    if sum(tenant.role != "baseline" and not tenant.dedicated for tenant in plan.workload.models) == 1:
        return "The only variant that could share cores."
    return "It has its own cores: together with other variants it would need more cores, or SLOs would be missed."


def _change(now: CurvePoint, then: CurvePoint) -> str:
    if not math.isfinite(now.growth):
        return "it has no traffic"
    return f"traffic could grow to {then.growth:.2f} times the present rate, instead of {now.growth:.2f} times"


def _cores(count: int) -> str:
    return "1 core" if count == 1 else f"{count} cores"


def _ms(value: float) -> str:
    return f"{value:.1f} ms" if math.isfinite(value) else "without bound"
