# SPDX-License-Identifier: Apache-2.0
"""Read a placement that is in use, so that it can be simulated as it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cost_model._reading import Reader, describe, read_json
from cost_model.errors import UsageError
from cost_model.fleet.bound import find_prices
from cost_model.fleet.machines import Fleet
from cost_model.fleet.needs import Survival, Unit
from cost_model.fleet.packing import Option, Packing
from cost_model.fleet.placer import Placement, Problem
from cost_model.fleet.report import SCHEMA
from cost_model.interference import Interference, default_interference
from cost_model.queueing import Member
from cost_model.workload import Workload


@dataclass
class _Placed:
    """Models that share cores, and their cores by machine."""

    names: list[str] = field(default_factory=list)
    cores: dict[str, dict[str, int]] = field(default_factory=dict)


def read_placement(
    path: Path, workload: Workload, fleet: Fleet, qps_by_model: Mapping[str, float], costs: Interference | None = None
) -> Placement:
    """Read the machines and cores of all models of a workload.

    Parameters
    ----------
    path : Path
        The JSON of `cost-model place --json`.
    workload : Workload
    fleet : Fleet
    qps_by_model : mapping of model to float [requests/s]
        Rates over the whole fleet.
    costs : Interference, optional
        By default the measured coefficients.

    Raises
    ------
    UsageError
        If the file is not a placement of these models on these machines.
    """
    data = read_json(path, UsageError, "the JSON of `cost-model place --json`")
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = describe(data.get("schema")) if isinstance(data, dict) else describe(data)
        raise UsageError(f"{path}: schema {found} found, expected '{SCHEMA}' of `cost-model place --json`")
    survive = data.get("survive")
    if survive not in {"none", "machine", "zone"} or (survive == "zone" and not fleet.zones):
        raise UsageError(f"{path}: survive: {describe(survive)} found, expected a loss that is possible in this fleet")
    survival = Survival(str(survive), len(fleet.machines), len(fleet.zones))
    groups = _groups(path, data, workload, fleet)
    interference = default_interference() if costs is None else costs
    members = {model.name: Member(model, qps_by_model[model.name]) for model in workload.models}
    units = tuple(Unit([members[name] for name in group.names], interference, survival, fleet) for group in groups)
    prices = find_prices(units, fleet)
    packing = Packing(units, fleet, survival, interference, prices)
    places = {machine.name: place for place, machine in enumerate(fleet.machines)}
    for number, (unit, group) in enumerate(zip(units, groups, strict=True)):
        by_machine = group.cores[group.names[0]]
        cores = np.full(len(places), math.inf)
        for machine, count in by_machine.items():
            cores[places[machine]] = count
        option = Option(len(by_machine), cores, unit.bandwidth_gbs(len(by_machine)))
        for machine in by_machine:
            packing.add(number, places[machine], option)
    _check_room(path, packing)
    return Placement(Problem(workload, fleet, units, survival, interference, prices), packing, (), 1.0)


def _groups(path: Path, data: Mapping[str, Any], workload: Workload, fleet: Fleet) -> list[_Placed]:
    """Return the models that share cores, as the file says."""
    names, machines = {model.name for model in workload.models}, {machine.name for machine in fleet.machines}
    replicas = data.get("replicas")
    if not isinstance(replicas, list):
        raise UsageError(f"{path}: replicas: {describe(replicas)} found, expected a list")
    found: dict[object, _Placed] = {}
    for number, item in enumerate(replicas):
        reader = Reader(f"{path}: replicas[{number}]", item, UsageError)
        name, machine, cores = reader.text("name"), reader.text("machine"), reader.integer("cores", least=1)
        if name not in names:
            raise UsageError(f"{path}: replicas[{number}]: model '{name}' found, expected one of the workload")
        if machine not in machines:
            raise UsageError(f"{path}: replicas[{number}]: machine '{machine}' found, expected one of the fleet")
        pool = item.get("pool")
        group = found.setdefault(name if pool is None else ("pool", describe(pool)), _Placed())
        if name not in group.names:
            group.names.append(name)
        group.cores.setdefault(name, {})[machine] = cores
    for group in found.values():
        other = next((name for name in group.names if group.cores[name] != group.cores[group.names[0]]), None)
        if other is not None:
            raise UsageError(f"{path}: {other}: other machines or cores than {group.names[0]} found in its pool")
    placed = {name for group in found.values() for name in group.names}
    missing = sorted(names - placed)
    if missing:
        raise UsageError(f"{path}: no replica of {missing[0]} found, expected one of each model of the workload")
    return list(found.values())


def _check_room(path: Path, packing: Packing) -> None:
    """Raise `UsageError` if a machine has too few cores or too little memory for its models."""
    for what, limit in (("cores", packing.cores), ("memory", packing.memory)):
        free = packing.free[what]
        place = int(np.argmin(free))
        if free[place] < -1e-6:
            unit = "cores" if what == "cores" else "GB of memory"
            raise UsageError(
                f"{path}: {packing.fleet.machines[place].name}: {limit[place] - free[place]:g} {unit} placed, expected "
                f"at most {limit[place]:g}"
            )
