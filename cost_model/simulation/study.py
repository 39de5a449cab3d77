# SPDX-License-Identifier: Apache-2.0
"""Find the capacity of every policy for all kinds of traffic and seeds, with one process per CPU."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from statistics import geometric_mean
from typing import Any

from cost_model.interference import Interference
from cost_model.machine import Machine
from cost_model.simulation.capacity import capacity, make_policy, traffic_bound_qps
from cost_model.simulation.inputs import build_inputs, schedule, shorten_traffic
from cost_model.simulation.run import Result, simulate
from cost_model.traffic import Traffic
from cost_model.workload import Workload


@dataclass(frozen=True)
class Row:
    """Describe one capacity.

    Parameters
    ----------
    qps : float [requests/s]
        Highest total rate (at level 1) at which every model met its SLO; 0 if there is none.
    requests, cpu_s : int, float [s]
        Requests that were simulated to find it, and the CPU time of the simulation.
    bound_qps : float [requests/s]
        Approximately the most that any policy could carry (`traffic_bound_qps`).
    binding : str
        The model that came closest to missing its SLO; if no rate was found, the models that no policy serves.
    """

    traffic: str
    policy: str
    seed: int
    interference: float
    qps: float
    runs: int
    requests: int
    cpu_s: float
    bound_qps: float
    binding: str = ""
    utilisation: float = 0.0
    slowdown: float = 0.0
    moves: int = 0


@dataclass(frozen=True)
class _Chain:
    """All seeds of one kind of traffic and one policy; each search starts from the previous result."""

    workload: Workload
    machine: Machine
    traffic: Traffic
    policy: str
    seeds: tuple[int, ...]
    interference: Interference
    scale: float
    part: float


def _run(chain: _Chain) -> list[Row]:
    interference = chain.interference.scaled(chain.scale)
    inputs = build_inputs(chain.workload)
    policy = make_policy(chain.policy, chain.workload, chain.machine, interference)
    rows: list[Row] = []
    guess = None
    if chain.traffic.duration_s > 300:
        # A tenth of the time is enough for most of the search.
        short = shorten_traffic(chain.traffic, 0.1)
        coarse = capacity(
            chain.workload, chain.machine, short, policy, chain.seeds[0], interference, inputs=inputs, part=0.01
        )
        guess = coarse.qps or None
    for seed in chain.seeds:
        began = time.process_time()
        found = capacity(
            chain.workload, chain.machine, chain.traffic, policy, seed, interference,
            inputs=inputs, guess=guess, part=chain.part,
        )  # fmt: skip
        guess = found.qps or guess
        row = Row(
            chain.traffic.name, chain.policy, seed, chain.scale, found.qps, found.runs, found.requests,
            time.process_time() - began,
            traffic_bound_qps(inputs, chain.machine, schedule(chain.workload, chain.traffic, seed)),
            ", ".join(inputs.unserved),
        )  # fmt: skip
        if found.result:
            result = found.result
            row = replace(
                row, binding=result.worst.name, utilisation=result.utilisation, slowdown=result.slowdown,
                moves=len(result.moves),
            )  # fmt: skip
        rows.append(row)
    return rows


def capacities(
    workload: Workload,
    machine: Machine,
    policies: Sequence[str],
    seeds: Iterable[int],
    interference: Interference,
    *,
    scales: Sequence[float] = (1.0,),
    part: float = 0.005,
    jobs: int | None = None,
    progress: Callable[[list[Row]], None] | None = None,
) -> list[Row]:
    """Find the capacities of policies for all kinds of traffic of a workload.

    Parameters
    ----------
    workload : Workload
    machine : Machine
    policies : sequence of str
    seeds : iterable of int
    interference : Interference
    scales : sequence of float
        Factors on the coefficients of interference.
    part : float
        Precision, as a part of the rate.
    jobs : int, optional
        Number of processes; by default the number of CPUs that this process may use.
    progress : callable of rows, optional
        Called when a kind of traffic is complete for a policy.
    """
    chains = [
        _Chain(workload, machine, traffic, policy, tuple(seeds), interference, scale, part)
        for scale in scales
        for traffic in sorted(workload.traffic, key=lambda traffic: -traffic.duration_s)
        for policy in policies
    ]
    rows: list[Row] = []
    for found in _map(_run, chains, jobs or len(os.sched_getaffinity(0))):
        rows += found
        if progress:
            progress(found)
    places = {traffic.name: place for place, traffic in enumerate(workload.traffic)}
    return sorted(rows, key=lambda row: (row.interference, places[row.traffic], policies.index(row.policy), row.seed))


def _map(function: Callable[[Any], Any], items: Sequence[Any], jobs: int) -> Iterator[Any]:
    if jobs <= 1 or len(items) <= 1:
        yield from map(function, items)
        return
    # Use new processes: a process that was forked from one with threads may deadlock.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(function, item) for item in items]):
            yield future.result()


@dataclass(frozen=True)
class Comparison:
    """Compare two policies over seeds: geometric mean and minimum of the ratios of capacities."""

    traffic: str
    interference: float
    policy: str
    against: str
    mean: float
    least: float


def compare(rows: Sequence[Row], policy: str, against: str) -> list[Comparison]:
    """Compare two policies for each kind of traffic; skip cases that one or both cannot carry."""
    known = {(row.interference, row.traffic, row.policy, row.seed): row.qps for row in rows}
    comparisons = []
    for scale, traffic in dict.fromkeys((row.interference, row.traffic) for row in rows):
        ratios = [
            qps / known[scale, traffic, against, seed]
            for (at, name, of, seed), qps in known.items()
            if (at, name, of) == (scale, traffic, policy) and qps and known.get((scale, traffic, against, seed))
        ]
        if ratios:
            comparisons.append(Comparison(traffic, scale, policy, against, geometric_mean(ratios), min(ratios)))
    return comparisons


def latency_curve(
    workload: Workload,
    machine: Machine,
    traffic: Traffic,
    policies: Sequence[str],
    rates: Sequence[float],
    seed: int,
    interference: Interference,
) -> dict[str, list[Result]]:
    """Run each policy at each rate, for a plot of latency against load."""
    inputs = build_inputs(workload)
    pieces = schedule(workload, traffic, seed)
    return {
        name: [
            simulate(
                inputs, machine, pieces, make_policy(name, workload, machine, interference), rate, seed, interference
            )
            for rate in rates
        ]
        for name in policies
    }


def to_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return rows in the format of a result file."""
    return [asdict(row) for row in rows]
