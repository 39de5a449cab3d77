# SPDX-License-Identifier: Apache-2.0
"""Define plans and their allocations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby

from cost_model.errors import UsageError
from cost_model.interference import Interference
from cost_model.machine import Machine
from cost_model.memory import MemoryUse
from cost_model.queueing import Prediction
from cost_model.workload import Workload


@dataclass(frozen=True)
class Allocation:
    """Contain cores and the models that run on them.

    Parameters
    ----------
    models : tuple of str
        One model, or the members of a pool.
    cores : tuple of int
        Indices into `machine.cores`; whole physical cores.
    sessions : int
    threads_per_session : int
        Cores per session, all on one node; sessions times threads may leave cores unused.
    predicted : dict of str to Prediction
    growth : float
        Factor by which the rates of its models can grow before an SLO is missed, not counting SLOs that no number of
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
        """Return the `cpusets` of its sessions in the format of libprocessor's configuration; each is on one node."""
        groups = []
        for _, there in groupby(self.cores, key=lambda core: machine.cores[core].node):
            cores, size = list(there), self.threads_per_session
            for first in range(0, len(cores) - size + 1, size):
                own = cores[first : first + size]
                groups.append(",".join(str(cpu) for core in own for cpu in machine.cores[core].cpus))
        return ";".join(groups)


@dataclass(frozen=True)
class Plan:
    """Contain the allocations of all models of a workload.

    Parameters
    ----------
    workload : Workload
    machine : Machine
    qps : dict of str to float [requests/s]
        Rates for which the plan was made.
    interference : Interference
    allocations : tuple of Allocation
        Baselines first.
    feasible : bool
        Whether every model is predicted to meet its SLO, and all fit into memory.
    reasons : tuple of str
        Reasons why the plan is not feasible, and other notes.
    memory_factor : float
        Slow-down by memory contention that the prediction includes.
    memory : MemoryUse, optional
        None: the memory of no model is known.
    """

    workload: Workload
    machine: Machine
    qps: dict[str, float]
    interference: Interference
    allocations: tuple[Allocation, ...]
    feasible: bool
    reasons: tuple[str, ...]
    memory_factor: float
    memory: MemoryUse | None = None

    def allocation(self, name: str) -> Allocation:
        """Return the allocation that contains a model.

        Raises
        ------
        UsageError
            If there is no such model.
        """
        for allocation in self.allocations:
            if name in allocation.models:
                return allocation
        raise UsageError(
            f"{name}: no such model found in the plan, expected one of {', '.join(sorted(self.qps)[:8])}, …"
        )

    @property
    def growth(self) -> float:
        """Return the factor by which all rates can grow before an SLO is missed that some number of cores meets."""
        return min(allocation.growth for allocation in self.allocations)

    @property
    def summary(self) -> str:
        """Describe the planned rates, and how far traffic can grow while all SLOs are met."""
        there = f"{len(self.qps)} models on {len(self.machine.cores)} cores, {sum(self.qps.values()):,.0f} requests/s"
        room = self.feasible and math.isfinite(self.growth)
        return there + (f"; traffic can grow to {self.growth:.2f} times that" if room else "")
