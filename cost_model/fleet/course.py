# SPDX-License-Identifier: Apache-2.0
"""Simulate a fleet: traffic, machines that fail and come back, hot spots, and the loss of each machine or zone.

Time goes in intervals of at most a second with constant rates; requests are not simulated one by one
(`cost_model.fleet.responses`). Clients divide the requests of a model evenly among the machines that they take for
alive. A machine that fails is noticed `detect_s` later: until then its part of the requests is late, and is sent again
to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cost_model.fleet.placer import Placement
from cost_model.fleet.responses import Floats, Replicas, replicas_of
from cost_model.simulation.inputs import Piece

LATE = 0.01
# Late parts between the points of the curves are up to some percent too large.
_TOLERANCE = 1.05
_HOT = 10


@dataclass(frozen=True)
class Failures:
    """Describe why machines are away.

    Parameters
    ----------
    mtbf_days : float [days]
        Mean time between failures of one machine.
    repair_s, detect_s : float [s]
        Time until a machine that failed is back, and until clients know that it failed.
    rollout_machines : int
        Machines that are restarted at a time from the beginning on, one group after the other, those of a zone first;
        0: none. Clients know it beforehand.
    rollout_s : float [s]
        How long each of them is away.
    """

    mtbf_days: float = 30.0
    repair_s: float = 600.0
    detect_s: float = 10.0
    rollout_machines: int = 0
    rollout_s: float = 30.0


@dataclass(frozen=True)
class Outage:
    """Describe when a machine is down, and from when on clients know it [s]."""

    machine: int
    begin: float
    noticed: float
    end: float


@dataclass(frozen=True)
class HotSpot:
    """Describe a machine by its busiest allocation: the largest part of its cores in use, and the time above 1."""

    machine: str
    busiest: float
    overloaded_s: float
    cause: str


@dataclass(frozen=True)
class ModelCourse:
    """Contain the requests of a unit of models, and the part that was late."""

    name: str
    requests: float
    late: float
    replicas: int

    @property
    def met(self) -> bool:
        return self.late <= LATE


@dataclass(frozen=True)
class Loss:
    """Contain what the loss of a domain does at the highest level of the traffic: the units that then are late."""

    domain: str
    late: tuple[str, ...]
    busiest: float


@dataclass(frozen=True)
class FleetResult:
    """Contain the course of a fleet.

    Parameters
    ----------
    traffic : str
    simulated_s : float [s]
    failures : int
        Number of machines that failed.
    models : tuple of ModelCourse
    hot_spots : tuple of HotSpot
        The machines that were busiest.
    losses : tuple of Loss
        Every domain whose loss makes a unit late; empty if the spare capacity suffices everywhere.
    worst_loss : Loss
    utilization : list of (time [s], mean, largest)
        The mean is the busy share of all allocated cores of the fleet; the largest is that of the busiest allocation.
    """

    traffic: str
    simulated_s: float
    failures: int
    models: tuple[ModelCourse, ...]
    hot_spots: tuple[HotSpot, ...]
    losses: tuple[Loss, ...]
    worst_loss: Loss
    utilization: list[tuple[float, float, float]] = field(default_factory=list)


def simulate_fleet(
    made: Placement, traffic: str, pieces: Sequence[Piece], shares: Floats, failures: Failures, seed: int
) -> FleetResult:
    """Simulate a placement.

    Parameters
    ----------
    made : Placement
        Its rates are those of level 1.
    traffic : str
        Name of the kind of traffic.
    pieces : sequence of Piece
        Of `cost_model.simulation.inputs.schedule`.
    shares : ndarray [models] float
        Parts of the requests at level 1, in the order of the workload.
    failures : Failures
    seed : int
    """
    replicas = replicas_of(made)
    outages = [*_failed(made, pieces[-1].end_s, failures, seed), *_restarted(made, failures)]
    factors = _Factors(made, shares)
    units = len(made.problem.units)
    requests, late = np.zeros(units), np.zeros(units)
    busiest, overloaded = np.zeros(len(made.packing.cores)), np.zeros(len(made.packing.cores))
    when = np.zeros(len(busiest), int)
    cores = np.bincount(replicas.machine, replicas.cores, len(busiest))
    course, start = [], 0.0
    for number, piece in enumerate(pieces):
        length = piece.end_s - start
        down, known = _down(outages, start, len(cores))
        dead, noticed = down[replicas.machine], known[replicas.machine]
        rate, work = factors.of(piece)
        busy, missed = _interval(replicas, work, dead, noticed, units)
        count = rate * length
        requests += count
        late += count * missed
        relative = np.zeros(len(busiest))
        np.maximum.at(relative, replicas.machine, busy)
        load = float((busy * replicas.cores).sum() / cores.sum())
        when[relative > busiest] = number
        busiest = np.maximum(busiest, relative)
        overloaded += length * (relative > 1.0)
        course.append((piece.end_s, load, float(relative.max())))
        start = piece.end_s
    order = np.argsort(-busiest, kind="stable")[: min(_HOT, int((cores > 0).sum()))]
    machines = made.problem.fleet.machines
    hot = tuple(
        HotSpot(machines[at].name, float(busiest[at]), float(overloaded[at]), _cause(made, outages, pieces, when[at]))
        for at in order.tolist()
    )
    models = tuple(
        ModelCourse(unit.name, float(requests[n]), float(late[n] / max(requests[n], 1.0)), len(made.packing.hosts[n]))
        for n, unit in enumerate(made.problem.units)
    )
    peak = max(pieces, key=lambda piece: piece.level)
    losses, worst = find_losses(made, replicas, factors.of(peak)[1])
    failed = sum(outage.noticed > outage.begin for outage in outages)
    return FleetResult(traffic, start, failed, models, hot, losses, worst, course)


def find_losses(made: Placement, replicas: Replicas, work: Floats) -> tuple[tuple[Loss, ...], Loss]:
    """Return the losses of a domain that make units late, and the loss after which a replica is busiest."""
    domains = made.packing.domain[replicas.machine]
    zones = made.problem.fleet.zones
    units = len(made.problem.units)
    found, worst = [], Loss("none", (), 0.0)
    for domain in np.unique(domains).tolist():
        affected = np.unique(replicas.unit[domains == domain])
        there = np.isin(replicas.unit, affected)
        dead = domains[there] == domain
        busy, missed = _interval(replicas.only(there), work, dead, dead, units)
        most = float("inf") if dead.all() else float(busy.max())
        name = zones[domain] if made.problem.survival.kind == "zone" else made.problem.fleet.machines[domain].name
        late = tuple(made.problem.units[n].name for n in affected.tolist() if missed[n] > _TOLERANCE * LATE)
        loss = Loss(name, late, most)
        if late:
            found.append(loss)
        if most > worst.busiest:
            worst = loss
    return tuple(found), worst


def _interval(
    replicas: Replicas, work: Floats, dead: NDArray[np.bool_], noticed: NDArray[np.bool_], units: int
) -> tuple[Floats, Floats]:
    """Return the utilization of each replica, and the late part of each unit.

    Parameters
    ----------
    replicas : Replicas
    work : ndarray [units] float
        Work relative to level 1.
    dead, noticed : ndarray [replicas] bool
        Replicas on machines that are down, and those of which clients know it.
    units : int
    """
    alive = np.bincount(replicas.unit, ~dead, units)
    asked = np.bincount(replicas.unit, ~noticed, units)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Requests to a dead replica come back to those that are alive.
        each = np.where(alive > 0, 1 / np.maximum(alive, 1), 0.0)[replicas.unit]
        busy = np.where(dead, 0.0, replicas.load * work[replicas.unit] * each / replicas.cores)
        sent = np.bincount(replicas.unit, dead & ~noticed, units) / np.maximum(asked, 1)
    late = np.bincount(replicas.unit, np.where(dead, 0.0, replicas.late_at(busy)), units) / np.maximum(alive, 1)
    missed = np.where(alive > 0, sent + (1 - sent) * late, 1.0)
    return np.asarray(busy, np.float64), np.asarray(missed, np.float64)


class _Factors:
    """Convert a piece of a schedule to rates and work of units."""

    def __init__(self, made: Placement, shares: Floats) -> None:
        names = [model.name for model in made.problem.workload.models]
        places = {name: place for place, name in enumerate(names)}
        self._units = len(made.problem.units)
        unit_of, rates, work = [], [], []
        for number, unit in enumerate(made.problem.units):
            for member in unit.members:
                unit_of.append((places[member.model.name], number))
                rates.append(member.qps / made.headroom)
                work.append(member.qps * member.points(1).mean)
        self._models = np.array([model for model, _ in unit_of])
        self._of = np.array([number for _, number in unit_of])
        self._rates, self._work, self._shares = np.array(rates), np.array(work), shares

    def of(self, piece: Piece) -> tuple[Floats, Floats]:
        """Return the rate of each unit [requests/s] and its work relative to level 1."""
        base = self._shares[self._models]
        share = np.divide(piece.shares[self._models], base, out=np.ones(len(base)), where=base > 0)
        rate = np.bincount(self._of, self._rates * share * piece.level, self._units)
        now = np.bincount(self._of, self._work * share * piece.factor[self._models] * piece.level, self._units)
        usual = np.bincount(self._of, self._work, self._units)
        work = np.divide(now, usual, out=np.zeros(self._units), where=usual > 0)
        return np.asarray(rate, np.float64), np.asarray(work, np.float64)


def _failed(made: Placement, end_s: float, failures: Failures, seed: int) -> list[Outage]:
    """Draw which machines fail, and when."""
    random = np.random.default_rng([seed, 13])
    found = []
    for machine in np.flatnonzero(made.packing.used).tolist():
        at = float(random.exponential(failures.mtbf_days * 86_400))
        while at < end_s:
            found.append(Outage(machine, at, at + failures.detect_s, at + failures.repair_s))
            at += failures.repair_s + float(random.exponential(failures.mtbf_days * 86_400))
    return found


def _restarted(made: Placement, failures: Failures) -> list[Outage]:
    """Return when machines are restarted for a rollout."""
    if failures.rollout_machines < 1:
        return []
    used = np.flatnonzero(made.packing.used)
    order = used[np.argsort(made.packing.domain[used], kind="stable")].tolist()
    found = []
    for place, machine in enumerate(order):
        begin = place // failures.rollout_machines * failures.rollout_s
        found.append(Outage(machine, begin, begin, begin + failures.rollout_s))
    return found


def _down(outages: Sequence[Outage], now: float, machines: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which machines are down, and of which clients know it [machines] bool."""
    down, known = np.zeros(machines, bool), np.zeros(machines, bool)
    down[[outage.machine for outage in outages if outage.begin <= now < outage.end]] = True
    known[[outage.machine for outage in outages if outage.noticed <= now < outage.end]] = True
    return down, known


def _cause(made: Placement, outages: Sequence[Outage], pieces: Sequence[Piece], number: int) -> str:
    """Say what happened in a piece of the schedule."""
    piece, now = pieces[number], pieces[number - 1].end_s if number else 0.0
    down, _ = _down(outages, now, len(made.packing.cores))
    names = [made.problem.fleet.machines[at].name for at in np.flatnonzero(down).tolist()]
    parts = [f"at {now:.0f} s", f"traffic at {piece.level:.2f} of its base"]
    slow = [model.name for model, f in zip(made.problem.workload.models, piece.factor, strict=True) if f > 1]
    if names:
        parts.append(f"{', '.join(names[:3])} down")
    if slow:
        parts.append(f"{', '.join(slow[:3])} slow")
    return ", ".join(parts)
