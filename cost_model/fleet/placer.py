# SPDX-License-Identifier: Apache-2.0
"""Place the models of a workload on the machines of a fleet.

Units (`cost_model.fleet.pools`) are placed one after the other, those with the most cores per replica first. All
replicas of a unit go to the machines on which they leave the fewest cores free and add the least memory; machines that
are not used yet come last. Then machines whose replicas fit elsewhere are emptied. That is repeated with other numbers
of replicas and other orders, at random with a fixed seed, and the placement of the least cost is kept. The bound of
`cost_model.fleet.bound` says how far it can be from the best.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cost_model.errors import UsageError
from cost_model.fleet.bound import Prices, find_prices
from cost_model.fleet.closing import close_machines
from cost_model.fleet.machines import Fleet
from cost_model.fleet.needs import Survival, Unit, scaled_members
from cost_model.fleet.packing import Packing, Weights
from cost_model.fleet.pools import make_units
from cost_model.interference import Interference, default_interference
from cost_model.queueing import Member
from cost_model.workload import Workload

SURVIVES = ("none", "machine", "zone")
# Numbers of replicas whose price is within this factor of the least are tried.
_NEAR = 1.04
# With more replicas than this, a previous number is given up for a cheaper one.
_NEAR_PREVIOUS = 1.25
# Units that gain more than this from a kind of CPU are placed before the others, so that they find room there.
_GAIN = 0.1
_TRIES = 24
# Small problems are tried more often: this number divided by the number of units.
_UNIT_TRIES = 300
# A placement whose gap is at most this is good enough.
_GOOD = 0.025
_SECONDS = 3.0

Previous = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Problem:
    """Contain the inputs of a placement in the form that all its parts use."""

    workload: Workload
    fleet: Fleet
    units: tuple[Unit, ...]
    survival: Survival
    costs: Interference
    prices: Prices

    def packing(self, weights: Weights | None = None) -> Packing:
        """Return a packing without replicas."""
        return Packing(self.units, self.fleet, self.survival, self.costs, self.prices, weights or Weights())


@dataclass(frozen=True)
class Placement:
    """Contain a placement.

    Parameters
    ----------
    problem : Problem
    packing : Packing
        Which units are on which machines.
    unplaced : tuple of int
        Numbers of units for which there is no room.
    headroom : float
        Factor of all rates for which it was made.
    previous : mapping of model to names of machines, optional
    """

    problem: Problem
    packing: Packing
    unplaced: tuple[int, ...]
    headroom: float
    previous: Previous | None = None

    @property
    def feasible(self) -> bool:
        """Return whether all models are placed and meet their SLOs after a loss."""
        return not self.unplaced and not any(unit.hopeless for unit in self.problem.units)

    @property
    def cost(self) -> float:
        return self.packing.total_cost()

    @property
    def gap(self) -> float:
        """Return by which part the cost is above its lower bound; infinity for a placement that lacks models."""
        bound = self.problem.prices.bound
        return math.inf if self.unplaced or bound <= 0 else self.cost / bound - 1

    def machines_of(self, model: str) -> frozenset[str]:
        """Return the names of the machines that have a model."""
        for number, unit in enumerate(self.problem.units):
            if model in unit.names:
                return frozenset(self.problem.fleet.machines[place].name for place in self.packing.hosts[number])
        return frozenset()

    def moves(self) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        """Return for each model that moves the machines that must load it and those that no longer need it."""
        if self.previous is None:
            return []
        found = []
        now = {name: self.machines_of(name) for unit in self.problem.units for name in unit.names}
        for name in dict.fromkeys([*now, *self.previous]):
            here, before = now.get(name, frozenset()), self.previous.get(name, frozenset())
            if here != before:
                found.append((name, tuple(sorted(here - before)), tuple(sorted(before - here))))
        return found


def make_problem(
    workload: Workload,
    fleet: Fleet,
    qps_by_model: Mapping[str, float],
    costs: Interference | None = None,
    survive: str | None = None,
    headroom: float = 1.0,
) -> Problem:
    """Group models into units, size them, and compute the lower bound.

    Parameters
    ----------
    workload : Workload
    fleet : Fleet
    qps_by_model : mapping of model to float [requests/s]
        Rates over the whole fleet.
    costs : Interference, optional
        By default the measured coefficients.
    survive : "none", "machine" or "zone", optional
        Loss that all SLOs survive; by default a zone if the fleet has several, otherwise a machine.
    headroom : float
        Factor of all rates.

    Raises
    ------
    UsageError
        If the fleet has fewer than two domains of that kind.
    """
    interference = default_interference() if costs is None else costs
    zones = len(fleet.zones)
    kind = survive or ("zone" if zones > 1 else "machine")
    if kind == "zone" and zones < 2:
        raise UsageError(f"--survive zone: a fleet with {zones} zones found, expected at least 2")
    if kind == "machine" and len(fleet.machines) < 2:
        raise UsageError("--survive machine: a fleet of one machine found, expected at least 2, or --survive none")
    survival = Survival(kind, len(fleet.machines), zones)
    members = scaled_members([Member(model, qps_by_model[model.name]) for model in workload.models], headroom)

    def make(some: Sequence[Member]) -> Unit:
        return Unit(some, interference, survival, fleet)

    largest_gb = max(machine.usable_gb for machine in fleet.machines)
    units = make_units(members, make, largest_gb)
    prices = find_prices(units, fleet)
    return Problem(workload, fleet, tuple(units), survival, interference, prices)


def place(
    problem: Problem,
    previous: Previous | None = None,
    *,
    headroom: float = 1.0,
    seed: int = 1,
    seconds: float = _SECONDS,
) -> Placement:
    """Find a placement.

    Parameters
    ----------
    problem : Problem
    previous : mapping of model to names of machines, optional
        Models stay on these machines as far as possible.
    headroom : float
        Factor of rates for which the problem was made.
    seed : int
    seconds : float [s]
        No further try begins after this time; the result depends on it only if there is no time for all tries.

    Returns
    -------
    placement : Placement
        If there is no room for all units, those without room are in `unplaced`.
    """
    began = time.perf_counter()
    random = np.random.default_rng(seed)
    readers = Counter(name for unit in problem.units for name in unit.tables)
    counts = [_good_counts(problem, unit, readers) for unit in problem.units]
    gains = [_gain(problem, unit) for unit in problem.units]
    best: tuple[Packing, list[int]] | None = None
    first: list[int] = []
    for attempt in range(max(_TRIES, _UNIT_TRIES // max(1, len(problem.units)))):
        packing, missing = _attempt(problem, counts, gains, first, previous, random if attempt else None)
        if best is None or _rank(problem, packing, missing) < _rank(problem, *best):
            best = packing, missing
        if not best[1] and (best[0].total_cost() <= problem.prices.bound * (1 + _GOOD) or previous is not None):
            break
        # Units without room come first in the next try.
        first = list(dict.fromkeys([*missing, *first]))[: len(problem.units) // 2 + 1] if missing else first
        if time.perf_counter() - began > seconds:
            break
    assert best is not None
    return Placement(problem, best[0], tuple(sorted(best[1])), headroom, previous)


def _rank(problem: Problem, packing: Packing, missing: Sequence[int]) -> tuple[float, float]:
    """Return what is to be as small as possible: the load without room, then the cost."""
    return sum(problem.units[number].load() + 1e-6 for number in missing), packing.total_cost()


def _good_counts(problem: Problem, unit: Unit, readers: Mapping[str, int]) -> list[tuple[float, int]]:
    """Return numbers of replicas with their prices, the best first; the price of a table is divided among its units."""
    memory_gb = unit.memory_gb + sum(table.memory_gb / readers[name] for name, table in unit.tables.items())
    # One machine of each kind: those with equal speed and prices, of which the largest counts.
    kinds: dict[tuple[float, float, float], int] = {}
    speeds = problem.fleet.speeds(unit.speedups)
    columns = zip(problem.fleet.machines, speeds, problem.prices.core.tolist(), problem.prices.gb.tolist(), strict=True)
    for machine, *kind in columns:
        key = (kind[0], kind[1], kind[2])
        kinds[key] = max(kinds.get(key, 0), machine.cores)
    found = []
    for count in unit.counts:
        each = [
            core * cores + gb * memory_gb
            for (speed, core, gb), most in kinds.items()
            if (cores := unit.cores(count, speed)) is not None and cores <= most
        ]
        if each:
            found.append((count * min(each), count))
    return sorted(found)


def _attempt(
    problem: Problem,
    counts: Sequence[Sequence[tuple[float, int]]],
    gains: Sequence[float],
    first: Sequence[int],
    previous: Previous | None,
    random: np.random.Generator | None,
) -> tuple[Packing, list[int]]:
    """Place all units once; return the packing and the units without room."""
    packing = problem.packing(None if random is None else _random_weights(random))
    near = _NEAR if random is None else float(random.choice([1.01, _NEAR, 1.1, 1.5]))
    any_count = random is not None and random.random() < 0.5
    wiggle = 0.0 if random is None else float(random.choice([0.0, 0.2, 0.8]))
    places = {machine.name: place_ for place_, machine in enumerate(problem.fleet.machines)}
    chosen: dict[int, list[list[int]]] = {}
    keeps: dict[int, list[int]] = {}
    sizes: dict[int, float] = {}
    for number, unit in enumerate(problem.units):
        before = _machines_before(unit, previous)
        keeps[number] = [places[name] for name in before if name in places]
        chosen[number] = _order_counts(counts[number], len(before), near)
        if any_count and chosen[number] and not before:
            chosen[number].insert(0, [int(random.choice(chosen[number][0]))])  # type: ignore[union-attr]
        cores = packing.option(number, chosen[number][0][0]).cores if chosen[number] else np.zeros(1)
        factor = 1.0 if random is None else float(random.uniform(1 - wiggle, 1 + wiggle))
        sizes[number] = float(cores.min()) * factor
    urgent = {number: -place_ - 1 for place_, number in enumerate(reversed(first))}
    # With a previous placement, the units that were there come first, so that others do not take their room.
    order = sorted(
        chosen,
        key=lambda number: (
            urgent.get(number, 0), not keeps[number], gains[number] <= _GAIN, -sizes[number], number
        ),
    )  # fmt: skip
    missing, fixed = [], set[tuple[int, int]]()
    for number in order:
        if not any(packing.place(number, count, keeps[number]) for count in chosen[number]):
            missing.append(number)
        fixed |= {(number, machine) for machine in packing.hosts[number] if machine in keeps[number]}
    close_machines(packing, fixed)
    return packing, missing


def _random_weights(random: np.random.Generator) -> Weights:
    return Weights(
        float(random.choice([0.05, 0.1, 0.3, 0.6, 1.0])),
        float(random.choice([2.0, 3.0, 4.0, 6.0])),
        float(random.choice([0.0, 0.0, 0.01, 0.03])),
    )


def _gain(problem: Problem, unit: Unit) -> float:
    """Return by which part a unit costs more without the CPUs on which it costs the least, at the prices of cores."""
    columns = zip(
        problem.fleet.machines, problem.fleet.speeds(unit.speedups), problem.prices.core.tolist(), strict=True
    )
    costs: dict[object, float] = {}
    for machine, speed, price in columns:
        key = (machine.speed, machine.features)
        costs[key] = min(costs.get(key, math.inf), price / speed)
    ranked = sorted(costs.values())
    return ranked[1] / ranked[0] - 1 if len(ranked) > 1 and ranked[0] > 0 else 0.0


def _order_counts(found: Sequence[tuple[float, int]], before: int, nearness: float) -> list[list[int]]:
    """Return groups of numbers of replicas: one of the first group is taken if there is room, otherwise of the next."""
    if not found:
        return []
    least = found[0][0]
    near = [count for price, count in found if price <= least * nearness]
    groups = [near, *([count] for _, count in found if count not in near)]
    if any(count == before and price <= least * _NEAR_PREVIOUS for price, count in found):
        groups.insert(0, [before])
    return groups


def _machines_before(unit: Unit, previous: Previous | None) -> list[str]:
    """Return the machines that had at least half of a unit's models, the ones with the most first."""
    if not previous:
        return []
    count = Counter(machine for name in unit.names for machine in previous.get(name, ()))
    kept = [machine for machine, number in count.items() if 2 * number >= len(unit.names)]
    return sorted(kept, key=lambda machine: (-count[machine], machine))
