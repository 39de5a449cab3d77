# SPDX-License-Identifier: Apache-2.0
"""Compute which part of the requests of a replica is late, as a function of how busy its cores are.

The waiting time of requests follows a change of the rate within milliseconds, and rates change within seconds. So the
late part in an interval of a second is that of the queueing model at the rate of the interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_model.fleet.placer import Placement

Floats = NDArray[np.float64]
# Utilizations at which the queueing model is evaluated; in between the logarithm of the late part is linear.
GRID: Floats = np.array([0.0, 0.3, 0.5, 0.6, 0.7, 0.8, *np.linspace(0.84, 0.99, 16), 0.995, 0.998, 0.999, 1.0])
_LEAST_SCALE = 1e-9
_LEAST_LATE = 1e-9


@dataclass(frozen=True)
class Replicas:
    """Contain all replicas of a placement, one after the other.

    Parameters
    ----------
    unit, machine : ndarray [replicas] int
    cores : ndarray [replicas] float
    load : ndarray [replicas] float
        Cores that all requests of the unit would keep busy on the CPU of this machine.
    late : ndarray [replicas, points] float
        Part of the requests of all models of the unit that is late, at the utilizations of `GRID`; above 0.
    """

    unit: NDArray[np.intp]
    machine: NDArray[np.intp]
    cores: Floats
    load: Floats
    late: Floats

    def only(self, chosen: NDArray[np.bool_]) -> Replicas:
        """Return some of the replicas."""
        return Replicas(
            self.unit[chosen], self.machine[chosen], self.cores[chosen], self.load[chosen], self.late[chosen]
        )

    def late_at(self, utilization: Floats) -> Floats:
        """Return the late part for the utilization of each replica [replicas]; 1 in overload."""
        place = np.clip(np.searchsorted(GRID, utilization, side="right") - 1, 0, len(GRID) - 2)
        part = ((utilization - GRID[place]) / (GRID[place + 1] - GRID[place])).clip(0.0, 1.0)
        each = np.arange(len(self.unit))
        low, high = self.late[each, place], self.late[each, place + 1]
        return np.asarray(low ** (1 - part) * high**part)


def replicas_of(made: Placement) -> Replicas:
    """Return the replicas of a placement with their late parts."""
    packing, problem = made.packing, made.problem
    curves: dict[tuple[int, int, float], Floats] = {}
    units, machines, cores, loads, late = [], [], [], [], []
    for number, unit in enumerate(problem.units):
        speeds = problem.fleet.speeds(unit.speedups)
        for machine, option in packing.hosts[number].items():
            count, speed = int(option.cores[machine]), speeds[machine]
            key = (number, count, speed)
            if key not in curves:
                curves[key] = _curve(made, number, count, speed)
            units.append(number)
            machines.append(machine)
            cores.append(float(count))
            loads.append(unit.load(speed) / made.headroom)
            late.append(curves[key])
    return Replicas(
        np.array(units, int), np.array(machines, int), np.array(cores), np.array(loads),
        np.array(late).reshape(len(late), len(GRID)),
    )  # fmt: skip


def _curve(made: Placement, number: int, cores: int, speed: float) -> Floats:
    """Return the late part at the utilizations of `GRID`."""
    sizing = made.problem.units[number].sizing(speed)
    rates = np.array([member.qps for member in sizing.members])
    if sizing.load <= 0:
        return np.append(np.full(len(GRID) - 1, _LEAST_LATE), 1.0)
    weights = rates / rates.sum()
    found = []
    for utilization in GRID[:-1]:
        scale = max(_LEAST_SCALE, float(utilization) * cores / sizing.load)
        options = [t for t in sizing.threads if t <= cores]
        found.append(min(float(sizing.late(cores // t, t, scale) @ weights) for t in options))
    return np.maximum(_LEAST_LATE, np.maximum.accumulate([*found, 1.0]))
