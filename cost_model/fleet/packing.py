# SPDX-License-Identifier: Apache-2.0
"""Put replicas of units onto machines, and keep account of cores, memory, disk, memory traffic and failure domains."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_model.fleet.bound import Prices
from cost_model.fleet.machines import Fleet
from cost_model.fleet.needs import Survival, Unit
from cost_model.interference import Interference

Floats = NDArray[np.float64]
# Tolerance of sums of GB.
_TINY = 1e-9
_MEMORY_WEIGHT = 0.02
_KEPT = 1e6


@dataclass(frozen=True)
class Weights:
    """Define what counts besides prices when a machine is chosen.

    Parameters
    ----------
    left : float
        Part of the price of the cores that stay free on a used machine.
    few : float [cores]
        Number of free cores that is hardly of use; many free cores count less.
    opening : float
        Part of its price that a replica costs more on a machine that was not used before.
    """

    left: float = 0.1
    few: float = 4.0
    opening: float = 0.0


@dataclass(frozen=True)
class Option:
    """What each replica takes if a unit has `replicas` of them.

    Attributes
    ----------
    cores : ndarray [machines] float
        Cores that it needs on each machine; infinite where it cannot run.
    bandwidth_gbs : float [GB/s]
        Its memory traffic.
    """

    replicas: int
    cores: Floats
    bandwidth_gbs: float


class Packing:
    """Contain which units are on which machines, and what is free.

    Parameters
    ----------
    units : sequence of Unit
    fleet : Fleet
    survival : Survival
    costs : Interference
        Memory traffic up to its knee does not slow requests down; machines carry no more.
    prices : Prices
    weights : Weights
    """

    def __init__(
        self,
        units: Sequence[Unit],
        fleet: Fleet,
        survival: Survival,
        costs: Interference,
        prices: Prices,
        weights: Weights = Weights(),
    ) -> None:
        self.weights = weights
        self.units, self.fleet, self.survival, self.prices = units, fleet, survival, prices
        machines = fleet.machines
        self.cores = np.array([float(machine.cores) for machine in machines])
        self.memory = np.array([machine.usable_gb for machine in machines])
        self.cost = np.array([machine.cost for machine in machines])
        disk = [math.inf if machine.disk_gb is None else machine.disk_gb for machine in machines]
        traffic = [
            costs.knee * len(machine.machine.nodes) * machine.machine.memory_bandwidth_gbs_per_node
            for machine in machines
        ]
        names = {name: place for place, name in enumerate(fleet.zones)}
        by_zone = survival.kind == "zone"
        self.domain = np.array([names[str(m.zone)] if by_zone else i for i, m in enumerate(machines)])
        self.disk, self.bandwidth = np.array(disk), np.array(traffic)
        self.free = {
            "cores": self.cores.copy(), "memory": self.memory.copy(), "disk": self.disk.copy(),
            "bandwidth": self.bandwidth.copy(),
        }  # fmt: skip
        used = {name: table for unit in units for name, table in unit.tables.items()}
        self._tables = {name: place for place, name in enumerate(used)}
        self._table_gb = np.array([table.memory_gb for table in used.values()])
        self._table_disk = np.array([table.disk_gb for table in used.values()])
        self._readers = np.zeros((len(used), len(machines)), int)
        self._unit_tables = [np.array([self._tables[name] for name in unit.tables], int) for unit in units]
        self.hosts: list[dict[int, Option]] = [{} for _ in units]
        self.residents: list[set[int]] = [set() for _ in machines]
        self._residents = np.zeros(len(machines), int)
        self._options: dict[tuple[int, int], Option] = {}

    def option(self, number: int, replicas: int) -> Option:
        """Return what a unit, by its number, takes with this number of replicas."""
        key = (number, replicas)
        if key not in self._options:
            unit = self.units[number]
            speeds = self.fleet.speeds(unit.speedups)
            known = {speed: unit.cores(replicas, speed) for speed in set(speeds)}
            cores = [math.inf if known[speed] is None else float(known[speed] or 0) for speed in speeds]
            self._options[key] = Option(replicas, np.array(cores), unit.bandwidth_gbs(replicas))
        return self._options[key]

    @property
    def used(self) -> NDArray[Any]:
        """Return whether each machine has replicas [machines] bool."""
        return np.asarray(self._residents > 0)

    def total_cost(self) -> float:
        """Return the cost of the machines that are used."""
        return float(self.cost[self.used].sum())

    def added(self, number: int) -> tuple[Floats, Floats]:
        """Return the memory and disk that a unit adds to each machine [GB]: tables that are there count no more."""
        unit, own = self.units[number], self._unit_tables[number]
        memory, disk = np.full(len(self.cores), unit.memory_gb), np.full(len(self.cores), unit.disk_gb)
        if len(own):
            missing = self._readers[own] == 0
            memory = memory + self._table_gb[own] @ missing
            disk = disk + self._table_disk[own] @ missing
        return memory, disk

    def lacks(self, number: int, option: Option) -> dict[str, NDArray[Any]]:
        """Return for each resource on which machines a replica of a unit lacks it [machines] bool."""
        memory, disk = self.added(number)
        return {
            "cores": option.cores > self.free["cores"],
            "memory": memory > self.free["memory"] + _TINY,
            "disk": disk > self.free["disk"] + _TINY,
            "bandwidth": option.bandwidth_gbs > self.free["bandwidth"] + _TINY,
        }

    def fits(self, number: int, option: Option) -> NDArray[Any]:
        """Return the machines that have room for a replica of a unit and do not have the unit yet [machines] bool."""
        lacking = self.lacks(number, option)
        found = ~(lacking["cores"] | lacking["memory"] | lacking["disk"] | lacking["bandwidth"])
        found[list(self.hosts[number])] = False
        return np.asarray(found)

    def scores(self, number: int, option: Option) -> Floats:
        """Return what a replica costs on each machine: its price, cores that stay free, and opening a machine."""
        memory, _ = self.added(number)
        need = np.where(np.isfinite(option.cores), option.cores, 0.0)
        price = self.prices.core * need + self.prices.gb * memory
        # A few cores that stay free on a machine are hardly of use; none, or many, are better.
        left = np.maximum(0.0, self.free["cores"] - need)
        weights = self.weights
        wasted = weights.left * self.prices.core * left * np.exp(-left / weights.few)
        waste = np.where(self.used, wasted, weights.opening * price)
        return np.asarray(price + waste + _MEMORY_WEIGHT * self.cost * memory / self.memory)

    def find(self, number: int, replicas: int, keep: Iterable[int] = ()) -> tuple[float, list[int]] | None:
        """Return the best machines for all replicas of a unit with the sum of their scores; None if there is no room.

        Machines to `keep` come first.
        """
        option = self.option(number, replicas)
        possible = self.fits(number, option)
        if int(possible.sum()) < replicas:
            return None
        score = self.scores(number, option)
        kept = [machine for machine in keep if possible[machine]]
        ranked = score.copy()
        ranked[kept] -= _KEPT
        order = np.flatnonzero(possible)
        order = order[np.argsort(ranked[order], kind="stable")]
        if self.survival.kind == "zone":
            most, count = self.survival.per_domain(replicas), dict[int, int]()
            chosen: list[int] = []
            for machine in order.tolist():
                domain = int(self.domain[machine])
                if count.get(domain, 0) < most:
                    count[domain] = count.get(domain, 0) + 1
                    chosen.append(machine)
                if len(chosen) == replicas:
                    break
        else:
            chosen = order[:replicas].tolist()
        return (float(score[chosen].sum()), chosen) if len(chosen) == replicas else None

    def place(self, number: int, counts: Iterable[int], keep: Iterable[int] = ()) -> bool:
        """Place a unit with the number of replicas that has the best score; change nothing if there is no room."""
        found = [(*place, count) for count in counts if (place := self.find(number, count, keep)) is not None]
        if not found:
            return False
        _, machines, count = min(found)
        option = self.option(number, count)
        for machine in machines:
            self.add(number, machine, option)
        return True

    def add(self, number: int, machine: int, option: Option) -> None:
        """Put a replica onto a machine."""
        self._change(number, machine, option, -1.0)
        self.hosts[number][machine] = option
        self.residents[machine].add(number)
        self._residents[machine] += 1

    def remove(self, number: int, machine: int) -> Option:
        """Take a replica from a machine."""
        option = self.hosts[number].pop(machine)
        self.residents[machine].discard(number)
        self._residents[machine] -= 1
        self._change(number, machine, option, 1.0)
        return option

    def _change(self, number: int, machine: int, option: Option, sign: float) -> None:
        unit, own = self.units[number], self._unit_tables[number]
        if sign > 0:
            self._readers[own, machine] -= 1
        absent = self._readers[own, machine] == 0
        if sign < 0:
            self._readers[own, machine] += 1
        changed = own[absent]
        self.free["cores"][machine] += sign * option.cores[machine]
        self.free["memory"][machine] += sign * (unit.memory_gb + float(self._table_gb[changed].sum()))
        self.free["disk"][machine] += sign * (unit.disk_gb + float(self._table_disk[changed].sum()))
        self.free["bandwidth"][machine] += sign * option.bandwidth_gbs

    def domain_room(self, number: int, replicas: int) -> NDArray[Any]:
        """Return the machines whose domain may take another replica of a unit [machines] bool."""
        if self.survival.kind != "zone":
            return np.ones(len(self.cores), bool)
        count = np.zeros(int(self.domain.max()) + 1, int)
        for machine in self.hosts[number]:
            count[self.domain[machine]] += 1
        return np.asarray(count[self.domain] < self.survival.per_domain(replicas))
