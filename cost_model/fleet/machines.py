# SPDX-License-Identifier: Apache-2.0
"""Describe the machines of a fleet: cores, speed, memory, disk, zone and cost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cost_model._reading import Reader, describe, read_yaml
from cost_model.errors import MachineError
from cost_model.machine import Machine
from cost_model.memory import USABLE

_MOST_MACHINES = 100_000

Speedups = tuple[tuple[str, float], ...]
"""Names of features of CPUs, and how much faster each makes a model."""


@dataclass(frozen=True)
class FleetMachine:
    """Describe one machine.

    Parameters
    ----------
    name : str
    machine : Machine
        Its cores, NUMA nodes and memory bandwidth.
    memory_gb : float [GB]
        Memory of the machine; hosts use a part of it for models and tables.
    disk_gb : float, optional [GB]
        Disk for the files of tables; None: not limited.
    zone : str, optional
        Machines of a zone may fail together.
    speed : float
        Service times on this machine are those of the workload divided by its speed.
    features : frozenset of str
        Instruction sets of its CPU, for example "avx512_bf16".
    cost : float
        Cost of using it; by default its number of cores.
    """

    name: str
    machine: Machine
    memory_gb: float
    disk_gb: float | None
    zone: str | None
    speed: float
    features: frozenset[str]
    cost: float

    @property
    def cores(self) -> int:
        return len(self.machine.cores)

    @property
    def usable_gb(self) -> float:
        """Return the memory that hosts use [GB]."""
        return USABLE * self.memory_gb

    def speed_for(self, speedups: Speedups) -> float:
        """Return the speed for a model that gains these factors from features of the CPU."""
        speed = self.speed
        for feature, factor in speedups:
            if feature in self.features:
                speed *= factor
        return speed


@dataclass(frozen=True)
class Fleet:
    """Contain the machines of a fleet, in the order of the file."""

    machines: tuple[FleetMachine, ...]

    @property
    def zones(self) -> tuple[str, ...]:
        """Return the zones in the order of the file; none if the file names none."""
        return tuple(dict.fromkeys(machine.zone for machine in self.machines if machine.zone is not None))

    @cached_property
    def most_cores(self) -> int:
        return max(machine.cores for machine in self.machines)

    @cached_property
    def _speeds(self) -> dict[Speedups, tuple[float, ...]]:
        return {}

    def speeds(self, speedups: Speedups) -> tuple[float, ...]:
        """Return the speed of each machine for a model that gains these factors from features of the CPU."""
        if speedups not in self._speeds:
            self._speeds[speedups] = tuple(machine.speed_for(speedups) for machine in self.machines)
        return self._speeds[speedups]


def load_fleet(path: str | Path) -> Fleet:
    """Read a fleet file (YAML); see docs/cost_model_fleet.md for its members.

    Raises
    ------
    MachineError
        If it cannot be read, or a member is missing, unknown or out of range; the message names file and member.
    """
    place = Path(path)
    try:
        return parse_fleet(read_yaml(place, MachineError))
    except MachineError as error:
        if not str(error).startswith(str(place)):
            error.args = (f"{place}: {error}",)
        raise


def parse_fleet(data: object) -> Fleet:
    """Parse a fleet from the mapping of its file.

    Raises
    ------
    MachineError
        If a member is missing, unknown or out of range, a name occurs twice, or only some machines have a zone.
    """
    reader = Reader("fleet", data, MachineError)
    machines: list[FleetMachine] = []
    for number, item in enumerate(reader.items("machines")):
        machines += _parse_machines(f"machines[{number}]", item)
        if len(machines) > _MOST_MACHINES:
            raise MachineError(f"machines: more than {_MOST_MACHINES} found, expected fewer")
    reader.end()
    seen: set[str] = set()
    for machine in machines:
        if machine.name in seen:
            raise MachineError(f"machines: '{machine.name}' found twice, expected a name for each machine")
        seen.add(machine.name)
    without = [machine.name for machine in machines if machine.zone is None]
    if without and len(without) < len(machines):
        raise MachineError(f"machines: no zone of '{without[0]}' found, expected a zone for all machines or for none")
    return Fleet(tuple(machines))


def _parse_machines(place: str, data: object) -> list[FleetMachine]:
    """Read a machine, or a group of equal machines."""
    reader = Reader(place, data, MachineError)
    if ("name" in reader) == ("group" in reader):
        raise MachineError(f"{place}: expected either a name or a group")
    group = reader.text("group") if "group" in reader else None
    name = group or reader.text("name")
    reader.place = f"{place} ({name})"
    count = reader.integer("count", least=1, most=_MOST_MACHINES) if group else 1
    cores = reader.integer("cores", least=1, most=4096)
    machine = Machine.even(
        cores,
        reader.integer("numa_nodes", 1, least=1, most=cores),
        reader.integer("smt", 1, least=1, most=8),
        reader.number("memory_bandwidth_gbs_per_node", 100.0, positive=True),
    )
    memory_gb = reader.number("memory_gb", positive=True)
    disk_gb = reader.number("disk_gb", positive=True) if "disk_gb" in reader else None
    zones = _zones(reader, bool(group))
    speed = reader.number("speed", 1.0, least=0.01, most=100)
    features = frozenset(_texts(reader, "features"))
    cost = reader.number("cost", float(cores), positive=True)
    reader.end()
    names = [f"{name}-{i}" for i in range(count)] if group else [name]
    return [
        FleetMachine(each, machine, memory_gb, disk_gb, zones[i % len(zones)], speed, features, cost)
        for i, each in enumerate(names)
    ]


def _zones(reader: Reader, is_group: bool) -> list[str | None]:
    """Take the zone, or the zones over which the machines of a group are spread in turn."""
    if "zone" in reader and "zones" in reader:
        raise reader.fail("zones", "both zone and zones", "one of them")
    if "zones" in reader:
        if not is_group:
            raise reader.fail("zones", "zones of a single machine", "zone")
        return [*_texts(reader, "zones")]
    return [reader.text("zone") if "zone" in reader else None]


def _texts(reader: Reader, key: str) -> list[str]:
    values: list[Any] = reader.items(key) if key in reader else []
    for value in values:
        if not isinstance(value, str) or not value:
            raise reader.fail(key, describe(value), "a list of texts")
    return values
