# SPDX-License-Identifier: Apache-2.0
r"""Compute a lower bound on the cost of the machines that any placement of these units uses.

Let a placement use the machines :math:`j \in J`, machine j with cost :math:`w_j`, :math:`C_j` cores and :math:`M_j` GB.
Unit u has :math:`n_u` replicas, each on a machine of its own; one on machine j takes at least :math:`k_{uj}(n_u)` cores
(the fewest with which the queueing model meets all SLOs at the rate after a loss) and :math:`a_u` GB. Every table t of
:math:`b_t` GB is on each machine that has a unit which reads it.

**Claim.** For all prices :math:`p_j \ge 0` of a core and :math:`q_j \ge 0` of a GB,

.. math::

    \sum_{j \in J} w_j \ge \sum_u \min_n n \min_j (p_j k_{uj}(n) + q_j a_u) + \sum_t r_t b_t \min_j q_j
    - \sum_j \max(0, p_j C_j + q_j M_j - w_j)

where the last sum is over all machines and :math:`r_t` is the largest of the fewest numbers of replicas of the units
that read t.

**Proof.** What is on a machine fits: :math:`w_j \ge p_j \cdot \text{cores used} + q_j \cdot \text{GB used} -
\max(0, p_j C_j + q_j M_j - w_j)`. Summed over J, the first two terms are a sum over replicas, plus one over tables.
Each of the :math:`n_u` replicas of a unit costs at least the minimum over machines, and its number of replicas at
least the minimum over numbers. A table is on at least as many machines as each of its units has replicas. The last
sum grows if it includes machines that are not used. ∎

Better prices make the bound larger, never wrong. They are :math:`p_j = \mu_c \theta w_j / C_j` and :math:`q_j = \mu_c
(1 - \theta) w_j / M_j` with one :math:`\mu_c \ge 1` for each kind c of CPU, found by coordinate ascent: :math:`\theta`
moves the price from cores to memory, and :math:`\mu_c` is above 1 if machines of that kind are scarce.
If all machines cost the same, the bound is rounded up to a multiple of that cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_model.fleet.machines import Fleet, FleetMachine
from cost_model.fleet.needs import Table, Unit

Floats = NDArray[np.float64]
_THETAS = (1.0, 0.95, 0.85, 0.7, 0.5, 0.3, 0.1, 0.0)
_FACTORS = (1.6, 1.25, 1.1, 1.03, 1 / 1.03, 1 / 1.1, 1 / 1.25, 1 / 1.6)
_ROUNDS = 3


@dataclass(frozen=True)
class Prices:
    """Contain the bound, and the prices that give it.

    Parameters
    ----------
    bound : float
        Lower bound on the cost of the machines of any placement.
    core, gb : ndarray [machines]
        Price of a core and of a GB of each machine.
    """

    bound: float
    core: Floats
    gb: Floats


@dataclass(frozen=True)
class _Kinds:
    """Machines of equal size, cost and CPU: `count` of each, and the kind of CPU `of` each."""

    machines: list[FleetMachine]
    count: Floats
    of: NDArray[np.intp]
    number: int


def find_prices(units: Sequence[Unit], fleet: Fleet) -> Prices:
    """Search the prices with the largest bound.

    Parameters
    ----------
    units : sequence of Unit
        Units without any possible number of replicas are left out.
    fleet : Fleet
    """
    kinds, kind_of = _kinds(fleet)
    rows = [_rows(unit, kinds) for unit in units if unit.counts]
    needs = _table_needs(units)
    cost = np.array([machine.cost for machine in kinds.machines])
    cores = np.array([float(machine.cores) for machine in kinds.machines])
    memory = np.array([machine.usable_gb for machine in kinds.machines])

    def bound(theta: float, scarcity: Floats) -> float:
        value = scarcity[kinds.of] * cost
        core, gb = theta * value / cores, (1 - theta) * value / memory
        total = needs * float(gb.min()) - float(kinds.count @ np.maximum(0.0, value - cost))
        return float(total + sum(_cheapest(row, core, gb) for row in rows))

    theta, scarcity = 1.0, np.ones(kinds.number)
    best = bound(theta, scarcity)
    for _ in range(_ROUNDS):
        before = best
        for other in _THETAS:
            if (found := bound(other, scarcity)) > best:
                best, theta = found, other
        for place in range(kinds.number if kinds.number > 1 else 0):
            for factor in _FACTORS:
                tried = scarcity.copy()
                tried[place] = max(1.0, tried[place] * factor)
                if (found := bound(theta, tried)) > best:
                    best, scarcity = found, tried
        if best <= before:
            break
    value = scarcity[kinds.of] * cost
    core, gb = theta * value / cores, (1 - theta) * value / memory
    return Prices(_round_up(max(0.0, best), cost), core[kind_of], gb[kind_of])


def _round_up(bound: float, cost: Floats) -> float:
    """Round a bound up to a multiple of the cost of a machine, if all cost the same."""
    if not np.all(cost == cost[0]):
        return bound
    each = float(cost[0])
    return math.ceil(bound / each - 1e-9) * each


def _kinds(fleet: Fleet) -> tuple[_Kinds, NDArray[np.intp]]:
    """Return the kinds of machines, and the kind of each machine."""
    places: dict[object, int] = {}
    cpus: dict[object, int] = {}
    machines: list[FleetMachine] = []
    counts: list[float] = []
    of: list[int] = []
    kind_of = []
    for machine in fleet.machines:
        cpu = (machine.speed, machine.features)
        key = (machine.cores, machine.usable_gb, machine.cost, cpu)
        if key not in places:
            places[key] = len(machines)
            machines.append(machine)
            counts.append(0.0)
            of.append(cpus.setdefault(cpu, len(cpus)))
        counts[places[key]] += 1
        kind_of.append(places[key])
    return _Kinds(machines, np.array(counts), np.array(of), len(cpus)), np.array(kind_of)


def _rows(unit: Unit, kinds: _Kinds) -> tuple[Floats, Floats, float]:
    """Return the numbers of replicas, the cores of each on every kind (infinite: not possible), and the memory."""
    counts = unit.counts
    speeds = [machine.speed_for(unit.speedups) for machine in kinds.machines]
    known = {speed: unit.all_cores(speed) for speed in set(speeds)}
    cores = np.array([[math.inf if k is None else float(k) for k in known[speed]] for speed in speeds]).T
    sizes = np.array([float(machine.cores) for machine in kinds.machines])
    return np.array(counts, np.float64), np.where(cores <= sizes, cores, math.inf), unit.memory_gb


def _cheapest(row: tuple[Floats, Floats, float], core: Floats, gb: Floats) -> float:
    """Return the least price of a unit over numbers of replicas and kinds of machines."""
    counts, cores, memory_gb = row
    possible = np.isfinite(cores)
    each = np.where(possible, np.where(possible, cores, 0.0) * core + memory_gb * gb, math.inf).min(axis=1)
    least = float((counts * each).min())
    return least if math.isfinite(least) else 0.0


def _table_needs(units: Sequence[Unit]) -> float:
    """Return the memory of all tables, each as often as it is at least needed [GB]."""
    fewest: dict[str, int] = {}
    tables: dict[str, Table] = {}
    for unit in units:
        tables |= unit.tables
        for name in unit.tables:
            fewest[name] = max(fewest.get(name, 0), unit.counts[0] if unit.counts else 0)
    return sum(tables[name].memory_gb * count for name, count in fewest.items())
