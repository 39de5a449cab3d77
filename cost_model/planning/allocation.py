# SPDX-License-Identifier: Apache-2.0
"""What a plan says."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby

from cost_model.errors import UsageError
from cost_model.interference import Interference
from cost_model.machine import Machine
from cost_model.queueing import Prediction
from cost_model.workload import Workload


@dataclass(frozen=True)
class Allocation:
    """Cores, and the models that have them.

    Parameters
    ----------
    models : tuple of str
        One, or those of a pool.
    cores : tuple of int
        Places in `machine.cores`; whole physical cores.
    sessions : int
    threads_per_session : int
        Cores of a session, all of one node; sessions times threads may leave cores over.
    predicted : dict of str to Prediction
    growth : float
        Factor by which the rates of its models can grow before an objective is missed, those aside that no number of
        cores meets; infinite without traffic.
    """

    models: tuple[str, ...]
    cores: tuple[int, ...]
    sessions: int
    threads_per_session: int
    predicted: dict[str, Prediction]
    growth: float

    @property
    def name(self) -> str:
        return self.models[0] if len(self.models) == 1 else f"pool of {len(self.models)} ({self.models[0]}, …)"

    def cpus(self, machine: Machine) -> str:
        """Return the `cpusets` of its sessions, as libprocessor's configuration has them; each is on one node."""
        groups = []
        for _, there in groupby(self.cores, key=lambda core: machine.cores[core].node):
            cores, size = list(there), self.threads_per_session
            for first in range(0, len(cores) - size + 1, size):
                own = cores[first : first + size]
                groups.append(",".join(str(cpu) for core in own for cpu in machine.cores[core].cpus))
        return ";".join(groups)


@dataclass(frozen=True)
class Plan:
    """Allocations of all models of a workload.

    Parameters
    ----------
    workload : Workload
    machine : Machine
    qps : dict of str to float [requests/s]
        What it was made for.
    interference : Interference
    allocations : tuple of Allocation
        Those of baselines first.
    feasible : bool
        Every model is expected to meet its objective.
    reasons : tuple of str
        Why it is not feasible, and what else a reader should know.
    memory_factor : float
        Slow-down by contention for memory that the prediction contains.
    """

    workload: Workload
    machine: Machine
    qps: dict[str, float]
    interference: Interference
    allocations: tuple[Allocation, ...]
    feasible: bool
    reasons: tuple[str, ...]
    memory_factor: float

    def allocation(self, name: str) -> Allocation:
        """Return the allocation that a model is in.

        Raises
        ------
        UsageError
            There is no such model.
        """
        for one in self.allocations:
            if name in one.models:
                return one
        raise UsageError(f"{name}: no model of the plan, expected one of {', '.join(sorted(self.qps)[:8])}, …")

    @property
    def growth(self) -> float:
        """Factor by which all rates can grow before an objective is missed, those aside that no cores meet."""
        return min(allocation.growth for allocation in self.allocations)

    @property
    def summary(self) -> str:
        """What it was made for, and how far traffic can grow within all objectives."""
        there = f"{len(self.qps)} models on {len(self.machine.cores)} cores, {sum(self.qps.values()):,.0f} requests/s"
        room = self.feasible and math.isfinite(self.growth)
        return there + (f"; traffic can grow to {self.growth:.2f} x of that" if room else "")
