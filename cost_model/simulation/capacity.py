# SPDX-License-Identifier: Apache-2.0
"""Find the highest rate at which every model meets its SLO, and reference values for comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from cost_model.errors import UsageError
from cost_model.interference import Interference
from cost_model.machine import Machine
from cost_model.simulation.inputs import (
    BROKEN,
    P99_MISSES,
    Inputs,
    Piece,
    build_inputs,
    missed_alone,
    schedule,
    shorten_traffic,
)
from cost_model.simulation.policies import (
    POLICIES,
    Dynamic,
    Policy,
    baseline_pool_policy,
    least_cores,
    planned_policy,
    shared_policy,
    static_policy,
)
from cost_model.simulation.run import Result, simulate
from cost_model.traffic import Traffic
from cost_model.workload import Workload

# The split of `baseline-pool` is chosen with separate traffic, not with the traffic that judges it.
_SPLIT_SEED = 1_000_003


@dataclass(frozen=True)
class Capacity:
    """Contain the highest passing rate [requests/s], the lowest failing rate, the run at the former, the run count."""

    qps: float
    failed_qps: float
    result: Result | None
    runs: int
    requests: int


def search(evaluate: Callable[[float], Result], low: float, guess: float, high: float, part: float) -> Capacity:
    """Find the highest rate that meets all SLOs, with a relative precision.

    Start at the guess and move away in growing steps until one rate passes and one fails, then bisect: three or four
    runs are enough if the guess (the result of another seed or policy) is close.

    Parameters
    ----------
    evaluate : callable of rate
    low, guess, high : float [requests/s]
        No rate above `high` is tried, as no policy could carry it; if no rate from `low` on passes, the result is 0.
    part : float
        Width of the last interval, as a part of the rate.
    """
    passed, failed, best, runs, requests = 0.0, high, None, 0, 0
    rate, stride = min(guess, high * (1 - part)), 2 * part
    while failed - passed > part * failed:
        result = evaluate(rate)
        runs, requests = runs + 1, requests + result.arrived
        if result.met:
            passed, best = rate, result
        else:
            failed = rate
        if passed == 0.0:
            if rate <= low:
                break
            rate, stride = max(low, rate * (1 - stride)), stride * 2.5
        elif failed == high and rate * (1 + stride) < high:
            rate, stride = rate * (1 + stride), stride * 2.5
        else:
            rate = (passed + failed) / 2
    return Capacity(passed, failed, best, runs, requests)


def bound_qps(inputs: Inputs, machine: Machine) -> float:
    """Return the rate that keeps all cores busy all the time without any interference [requests/s]."""
    return len(machine.cores) / inputs.demand_us * 1e6


def traffic_bound_qps(inputs: Inputs, machine: Machine, pieces: Sequence[Piece]) -> float:
    r"""Return approximately the highest rate that any policy could carry under changing traffic [requests/s].

    It assumes that all cores are busy whenever there is work, that there is no interference, that models are rejected
    during events in which they are not judged, and that one percent of the work is lost: the largest :math:`q` with
    :math:`\sum_i t_i \max(0, q w_i - c) \le 0.01 \sum_i t_i q w_i` over pieces of length :math:`t_i` that bring
    :math:`w_i` core seconds per request at level 1 to :math:`c` cores. Queues do not carry work from one second to the
    next, because SLOs are some tens of milliseconds.
    """
    work, lengths, start = [], [], 0.0
    for piece in pieces:
        broken = np.array(
            [
                factor > 1 and missed_alone(inputs.load, place, factor) > BROKEN
                for place, factor in enumerate(piece.factor)
            ]
        )
        each = np.where(broken, 0.0, piece.shares * inputs.mean_us * piece.factor)
        work.append(piece.level * float(each.sum()) * 1e-6)
        lengths.append(piece.end_s - start)
        start = piece.end_s
    per_request, seconds = np.array(work), np.array(lengths)
    low, high = 0.0, 2 * len(machine.cores) / float(per_request[per_request > 0].min())
    for _ in range(60):
        rate = (low + high) / 2
        demand = rate * per_request
        lost = float(seconds @ np.maximum(0.0, demand - len(machine.cores)))
        low, high = (rate, high) if lost <= P99_MISSES * float(seconds @ demand) else (low, rate)
    return low


def make_policy(name: str, workload: Workload, machine: Machine, interference: Interference) -> Policy:
    """Create a policy by its name.

    Raises
    ------
    UsageError
        If the machine has too few cores for it.
    """
    least = least_cores(name, workload)
    if len(machine.cores) < least:
        raise UsageError(f"{name}: {len(machine.cores)} cores found, expected at least {least} for this workload")
    if name == "shared":
        return shared_policy()
    if name == "static":
        return static_policy()
    if name == "baseline-pool":
        return baseline_pool_policy(workload, best_split(workload, machine, interference))
    if name == "planned":
        return planned_policy(workload, interference)
    if name == "dynamic":
        return Dynamic(workload)
    raise KeyError(f"{name}: no such policy found, expected one of {', '.join(POLICIES)}")


def capacity(
    workload: Workload,
    machine: Machine,
    traffic: Traffic,
    policy: Policy,
    seed: int,
    interference: Interference,
    *,
    inputs: Inputs | None = None,
    guess: float | None = None,
    part: float = 0.005,
) -> Capacity:
    """Find the highest total rate [requests/s] at which every model meets its SLO under a policy."""
    inputs = inputs or build_inputs(workload)
    pieces = schedule(workload, traffic, seed)
    high = bound_qps(inputs, machine) * 1.3 / min(1.0, sum(p.level for p in pieces) / len(pieces))

    def evaluate(qps: float) -> Result:
        return simulate(inputs, machine, pieces, policy, qps, seed, interference, stop_early=True)

    return search(evaluate, 0.02 * high, guess or 0.7 * high, high, part)


@lru_cache(maxsize=32)
def best_split(workload: Workload, machine: Machine, interference: Interference, seconds: float = 8.0) -> int:
    """Return the number of baseline cores with which `baseline-pool` carries most at steady base traffic.

    Start from the split by demand and climb in steps of four cores, two and one.
    """
    inputs = build_inputs(workload)
    traffic = Traffic("split", "poisson", seconds)
    cores = len(machine.cores)
    demand = inputs.shares * inputs.mean_us
    baseline = [place for place, model in enumerate(workload.models) if model.role == "baseline"]
    first = max(1, min(cores - 1, round(cores * float(demand[baseline].sum() / demand.sum()))))
    guess = 0.85 * bound_qps(inputs, machine)
    reached: dict[int, float] = {}

    def capacity_with(split: int) -> float:
        if split not in reached:
            policy = baseline_pool_policy(workload, split)
            found = capacity(
                workload, machine, traffic, policy, _SPLIT_SEED, interference, inputs=inputs, part=0.004,
                guess=max(reached.values(), default=guess),
            )  # fmt: skip
            reached[split] = found.qps
        return reached[split]

    best = first
    for stride in (4, 2, 1):
        while True:
            near = [split for split in (best - stride, best + stride) if 0 < split < cores]
            better = max(near, key=capacity_with, default=best)
            if capacity_with(better) <= capacity_with(best):
                break
            best = better
    return best


def scaled_workload(workload: Workload, minutes_scale: float) -> Workload:
    """Shorten all kinds of traffic of a workload."""
    return replace(workload, traffic=tuple(shorten_traffic(traffic, minutes_scale) for traffic in workload.traffic))
