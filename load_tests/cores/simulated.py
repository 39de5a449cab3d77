# SPDX-License-Identifier: Apache-2.0
"""Simulate what `load_tests.bench_slo_capacity` measures: the same traffic, with the measured service time."""

from __future__ import annotations

import os

import numpy as np

from cost_model.interference import default_interference
from cost_model.machine import Machine
from cost_model.service import RowDistribution, ServiceTime
from cost_model.simulation.capacity import search
from cost_model.simulation.inputs import Piece, build_inputs
from cost_model.simulation.policies import (
    Dynamic,
    Policy,
    baseline_pool_policy,
    planned_policy,
    shared_policy,
    time_sliced,
)
from cost_model.simulation.run import Result, simulate
from cost_model.workload import Tenant, Workload
from load_tests.cores.moving import PHASES, SLOW, SLOW_FACTOR, VERSIONS
from load_tests.cores.stage import BASELINE

__all__ = ["simulated_capacities"]


def _workload(machine: Machine, service_us: float, cv: float, slo_ms: float) -> Workload:
    shares = np.mean([phase.shares for phase in PHASES], axis=0)
    service, one = ServiceTime(service_us, 0.0, cv), RowDistribution.constant(1)
    models = tuple(
        Tenant(
            f"ranking-{version}",
            "baseline" if version == BASELINE else "variant",
            service,
            one,
            slo_ms,
            of=None if version == BASELINE else f"ranking-{BASELINE}",
            share=float(share),
        )
        for version, share in zip(VERSIONS, shares, strict=True)
    )
    return Workload(machine, models, (), (1,), None)


def _pieces(phase_s: int) -> list[Piece]:
    """Return the phases as pieces of a second; a share of a phase is constant in it."""
    pieces = []
    for number, phase in enumerate(PHASES):
        shares, factor = np.array(phase.shares), np.ones(len(VERSIONS))
        if phase.slow:
            factor[VERSIONS.index(SLOW)] = SLOW_FACTOR
        pieces += [Piece(float(number * phase_s + second + 1), 1.0, shares, factor) for second in range(phase_s)]
    return pieces


def simulated_capacities(
    service_us: float, cv: float, slo_ms: float, phase_s: int, seeds: tuple[int, ...] = (1, 2, 3)
) -> dict[str, float]:
    """Return for each arm the simulated requests/s at which every judged model meets its SLO, the mean over seeds.

    Every model has threads of its own, which take turns on the cores of its group, as on hosts. A phase is longer than
    in the measurement, since the time after a change is judged as well.

    Parameters
    ----------
    service_us : float [µs]
        Mean service time of a request.
    cv : float
        Its coefficient of variation.
    slo_ms : float [ms]
    phase_s : int [s]
    """
    machine = Machine.even(len(os.sched_getaffinity(0)))
    workload, interference = _workload(machine, service_us, cv, slo_ms), default_interference()
    inputs, pieces = build_inputs(workload), _pieces(phase_s)
    high = len(machine.cores) / service_us * 1e6
    policies: dict[str, Policy] = {
        "none": shared_policy(),
        "pool": time_sliced(baseline_pool_policy(workload, max(1, len(machine.cores) // 2))),
        "plan": time_sliced(planned_policy(workload, interference)),
        # Hosts lend no idle cores.
        "control": time_sliced(Dynamic(workload, lending=False)),
    }

    def capacity(policy: Policy, seed: int) -> float:
        def evaluate(qps: float) -> Result:
            return simulate(inputs, machine, pieces, policy, qps, seed, interference, stop_early=True)

        return search(evaluate, 0.02 * high, 0.5 * high, high, 0.01).qps

    return {name: sum(capacity(policy, seed) for seed in seeds) / len(seeds) for name, policy in policies.items()}
