# SPDX-License-Identifier: Apache-2.0
"""Simulate a small real scenario from measured profiles, for comparison with a run on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cost_model.interference import NONE, Interference
from cost_model.machine import Machine
from cost_model.simulation.inputs import build_inputs, schedule
from cost_model.simulation.policies import Dynamic, Fixed, Policy, fixed_assignment
from cost_model.simulation.run import ModelResult, simulate
from cost_model.simulation.slices import simulate_sessions
from cost_model.traffic import Traffic
from cost_model.workload import Tenant, Workload


@dataclass(frozen=True)
class SimulatedPrediction:
    """Contain the predicted values of one model.

    Parameters
    ----------
    p50_ms, p99_ms, mean_ms : float [ms]
        Time in the server, including waiting; the mean over seeds.
    p99_spread_ms : float [ms]
        Largest difference between seeds; repeated measurements of this length differ by as much.
    throughput_qps : float [requests/s]
    """

    p50_ms: float
    p99_ms: float
    mean_ms: float
    p99_spread_ms: float
    throughput_qps: float
    dropped: int


def predict_small(
    models: Sequence[Tenant],
    machine: Machine,
    cores_of: Mapping[str, Sequence[int]] | None,
    *,
    seconds: float,
    interference: Interference = NONE,
    threads: Mapping[str, int] | None = None,
    traffic: Traffic | None = None,
    seeds: Sequence[int] = (1, 2, 3),
    dynamic: bool = False,
) -> dict[str, SimulatedPrediction]:
    """Predict the latency of a few models on a few cores.

    Parameters
    ----------
    models : sequence of Tenant
        Each has `qps`, and a measured `ServiceTable` or a `ServiceTime`.
    machine : Machine
    cores_of : mapping of model to cores, optional
        Indices of cores; models with equal sets share one queue; other sets must not overlap. None: all share all.
    seconds : float [s]
        Duration of the real run, so that spreads are comparable.
    interference : Interference
    threads : mapping of model to int, optional
    traffic : Traffic, optional
        By default Poisson at the given rates.
    seeds : sequence of int
    dynamic : bool
        Let the controller assign the cores instead of `cores_of`.
    """
    total = sum(model.qps or 0.0 for model in models)
    workload = Workload(machine, tuple(models), (), tuple(seeds), total)
    inputs = build_inputs(workload, threads)
    shape = traffic or Traffic("steady", "poisson", seconds)
    runs: dict[str, list[ModelResult]] = {model.name: [] for model in models}
    for seed in seeds:
        policy: Policy = Dynamic(workload) if dynamic else _cpusets(models, machine, cores_of)
        result = simulate(inputs, machine, schedule(workload, shape, seed), policy, total, seed, interference)
        for model in result.models:
            runs[model.name].append(model)
    count = len(seeds)
    return {
        name: SimulatedPrediction(
            sum(run.p50_ms for run in of) / count,
            sum(run.p99_ms for run in of) / count,
            sum(run.mean_ms for run in of) / count,
            max(run.p99_ms for run in of) - min(run.p99_ms for run in of),
            sum(run.completed for run in of) / count / shape.duration_s,
            sum(run.dropped for run in of),
        )
        for name, of in runs.items()
    }


def predict_sessions(
    models: Sequence[Tenant],
    cores: int,
    *,
    seconds: float,
    interference: Interference = NONE,
    seeds: Sequence[int] = (1, 2, 3),
) -> dict[str, SimulatedPrediction]:
    """Predict the latency of models that share cores, each with its own session, as on hosts; see `slices`.

    Parameters
    ----------
    models : sequence of Tenant
        Each has `qps`; arrivals are Poisson.
    cores : int
    seconds : float [s]
        Duration of the real run, so that spreads are comparable.
    interference : Interference
    seeds : sequence of int
    """
    runs = [simulate_sessions(models, cores, seconds, seed, interference) for seed in seeds]
    predictions = {}
    for place, model in enumerate(models):
        times = [run[place] for run in runs if len(run[place])]
        p50, p99 = (np.array([np.quantile(time, level) for time in times]) / 1e3 for level in (0.5, 0.99))
        predictions[model.name] = SimulatedPrediction(
            float(p50.mean()) if times else 0.0,
            float(p99.mean()) if times else 0.0,
            float(np.mean([time.mean() for time in times])) / 1e3 if times else 0.0,
            float(p99.max() - p99.min()) if times else 0.0,
            sum(len(time) for time in times) / len(seeds) / seconds,
            0,
        )
    return predictions


def _cpusets(models: Sequence[Tenant], machine: Machine, cores_of: Mapping[str, Sequence[int]] | None) -> Fixed:
    every = tuple(range(len(machine.cores)))
    sets = {model.name: tuple((cores_of or {}).get(model.name, every)) for model in models}
    groups = list(dict.fromkeys(sets.values()))
    taken = [core for group in groups for core in group]
    if len(set(taken)) != len(taken):
        raise ValueError(f"cores_of: sets {groups} that overlap found, expected equal or disjoint ones")
    owner = {core: place for place, group in enumerate(groups) for core in group}
    # A core without models belongs to a group without models.
    owners = [owner.get(core, len(groups)) for core in every]
    labels = [*(" ".join(map(str, group)) for group in groups), *(["unused"] if len(groups) in owners else [])]
    assignment = fixed_assignment(labels, owners, [groups.index(sets[model.name]) for model in models])
    return Fixed("cpusets", lambda *_: assignment)
