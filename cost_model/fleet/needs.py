# SPDX-License-Identifier: Apache-2.0
"""Compute the cores that a replica needs, by the queueing model of plans, for numbers of replicas and kinds of CPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cost_model.fleet.machines import Fleet, Speedups
from cost_model.interference import Interference
from cost_model.planning.sizing import Sizing
from cost_model.queueing import Member
from cost_model.queueing.pool import bandwidth_bytes_per_s
from cost_model.workload import Tenant

# By default, a replica keeps at least this many cores busy: smaller ones need more cores together.
_LEAST_BUSY_CORES = 4.0
# By default, a unit has at most this many replicas more than the fewest that are possible.
_MOST_MORE = 16


@dataclass(frozen=True)
class Table:
    """Describe a table that models can share: memory and file [GB]."""

    memory_gb: float
    disk_gb: float


def tables_of(model: Tenant) -> dict[str, Table]:
    """Return the tables of a model by content and tier; a machine has each once."""
    if model.memory is None:
        return {}
    files = model.memory.files
    return {name: Table(size / 1e9, files.get(name, 0) / 1e9) for name, size in model.memory.tables.items()}


def own_gb(model: Tenant) -> float:
    """Return the memory of a model without its tables [GB]."""
    return model.footprint.memory_gb + (model.memory.own / 1e9 if model.memory else 0.0)


@dataclass(frozen=True)
class Survival:
    """Describe the losses that a placement must survive.

    Parameters
    ----------
    kind : "none", "machine" or "zone"
    machines : int
        Number of machines.
    zones : int
        Number of zones; 0 without zones.
    """

    kind: str
    machines: int
    zones: int

    @property
    def domains(self) -> int:
        """Return the number of domains over which replicas are spread."""
        return self.zones if self.kind == "zone" else self.machines

    def per_domain(self, replicas: int) -> int:
        """Return how many of these replicas may be in one domain, and are lost with it."""
        return math.ceil(replicas / self.domains) if self.kind == "zone" else 1

    def left(self, replicas: int) -> int:
        """Return how many of these replicas certainly remain after a loss."""
        return replicas if self.kind == "none" else replicas - self.per_domain(replicas)

    @property
    def least_replicas(self) -> int:
        return 1 if self.kind == "none" else 2


class Unit:
    """Contain models that are placed together: one model with its own cores, or a pool of variants.

    Parameters
    ----------
    members : sequence of Member
        Models with their rates over the whole fleet.
    costs : Interference
    survival : Survival
    fleet : Fleet
    """

    def __init__(self, members: Sequence[Member], costs: Interference, survival: Survival, fleet: Fleet) -> None:
        self.members = tuple(members)
        self.survival = survival
        self.most_cores = fleet.most_cores
        self._fleet = fleet
        self._costs = costs
        self._sizings: dict[float, Sizing] = {}
        self._cores: dict[tuple[int, float], int | None] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.model.name for member in self.members)

    @property
    def name(self) -> str:
        return self.names[0] if len(self.names) == 1 else f"pool of {len(self.names)} ({self.names[0]}, …)"

    @cached_property
    def tables(self) -> dict[str, Table]:
        """Return the tables of its models by content and tier."""
        return {name: table for member in self.members for name, table in tables_of(member.model).items()}

    @cached_property
    def memory_gb(self) -> float:
        """Return the memory of its models without tables [GB]."""
        return sum(own_gb(member.model) for member in self.members)

    @cached_property
    def disk_gb(self) -> float:
        """Return the disk of its models without tables [GB]."""
        return sum(member.model.footprint.disk_gb for member in self.members)

    @property
    def speedups(self) -> Speedups:
        """Return what CPU features give its models; equal for all of them."""
        return self.members[0].model.footprint.speedups

    @cached_property
    def speeds(self) -> tuple[float, ...]:
        """Return the different speeds that its models have on the machines of the fleet, the fastest first."""
        return tuple(sorted(set(self._fleet.speeds(self.speedups)), reverse=True))

    def load(self, speed: float = 1.0) -> float:
        """Return the cores of this speed that its models keep busy together, over the whole fleet."""
        return self.sizing(speed).load

    def sizing(self, speed: float) -> Sizing:
        """Return the queueing model of its members on cores of this speed."""
        if speed not in self._sizings:
            self._sizings[speed] = Sizing(self.members, self._costs, 1 / speed, self.most_cores)
        return self._sizings[speed]

    def late_at(self, speed: float) -> tuple[str, ...]:
        """Return models that miss their SLO on cores of this speed however many there are."""
        sizing = self.sizing(speed)
        return (*sizing.late_alone, *sizing.crowded)

    @cached_property
    def hopeless(self) -> tuple[str, ...]:
        """Return models that miss their SLO on every machine."""
        return tuple(name for name in self.names if all(name in self.late_at(speed) for speed in self.speeds))

    def cores(self, replicas: int, speed: float) -> int | None:
        """Return the cores that a replica needs so that all SLOs are met after a loss; None if no number meets them.

        A model that misses its SLO on every machine is ignored.
        """
        key = (replicas, speed)
        if key not in self._cores:
            self._cores[key] = self._find_cores(replicas, speed)
        return self._cores[key]

    def _find_cores(self, replicas: int, speed: float) -> int | None:
        left = self.survival.left(replicas)
        if left < 1 or set(self.late_at(speed)).difference(self.hopeless):
            return None
        sizing = self.sizing(speed)
        need = sizing.need(1 / left)
        return need if need <= self.most_cores else None

    def all_cores(self, speed: float) -> list[int | None]:
        """Return the cores that a replica needs for each possible number of replicas."""
        counts = self.counts
        if counts:
            self._fill(counts[0], counts[-1], speed)
        return [self.cores(count, speed) for count in counts]

    def _fill(self, low: int, high: int, speed: float) -> None:
        """Compute the needs between two numbers of replicas; if both have the same, all in between have it too."""
        least, most = self.cores(high, speed), self.cores(low, speed)
        if high - low < 2:
            return
        if least == most:
            self._cores.update({(count, speed): least for count in range(low + 1, high)})
            return
        middle = (low + high) // 2
        self._fill(low, middle, speed)
        self._fill(middle, high, speed)

    def bandwidth_gbs(self, replicas: int) -> float:
        """Return the memory traffic of a replica after a loss [GB/s]."""
        return bandwidth_bytes_per_s(self.members) / 1e9 / max(1, self.survival.left(replicas))

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Return the possible numbers of replicas, increasing; empty if there is none."""
        footprints = [member.model.footprint for member in self.members]
        least = max(self.survival.least_replicas, *(footprint.least_replicas for footprint in footprints))
        given = [footprint.most_replicas for footprint in footprints if footprint.most_replicas is not None]
        most = min([*given, self.survival.machines])
        first = next((count for count in self._enough(least, most)), None)
        if first is None:
            return ()
        if not given:
            usual = math.ceil(self.load(self.speeds[0]) / _LEAST_BUSY_CORES)
            most = min(most, max(first + 1, min(usual, first + _MOST_MORE)))
        return tuple(range(first, most + 1))

    def _enough(self, least: int, most: int) -> range:
        """Return the numbers of replicas of which each can get enough cores on some machine."""
        low, high = least, most + 1
        while low < high:
            middle = (low + high) // 2
            if any(self.cores(middle, speed) is not None for speed in self.speeds):
                high = middle
            else:
                low = middle + 1
        return range(low, most + 1)


def scaled_members(members: Sequence[Member], factor: float) -> list[Member]:
    """Return models with all rates multiplied by a factor."""
    return [replace(member, qps=member.qps * factor) for member in members]
