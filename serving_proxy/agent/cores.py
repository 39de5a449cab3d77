# SPDX-License-Identifier: Apache-2.0
"""Give the versions of a machine the cores that its placement names. Pure functions.

A placement names cores by their index in the order of NUMA nodes and CPUs. If a machine has other cores than the fleet
file says, each list of cores is replaced by as many cores of this machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from cost_model.errors import MachineError
from cost_model.machine import Machine, parse_cpus, this_machine
from serving_proxy.deploy.desired_state import worker_threads
from serving_proxy.records.agents import PlacedCores
from serving_proxy.records.models import Settings
from serving_proxy.system.cpus import format_cpus

Json = dict[str, Any]


@dataclass(frozen=True)
class DividedCores:
    """The CPUs of versions, by `model/version`, and why they are not as placed; "" if they are."""

    cpus: Mapping[str, str]
    fault: str = ""


def machine_of(cpus: Iterable[int]) -> Machine:
    """Return the machine of these CPUs, which hosts may use."""
    usable = frozenset(cpus)
    return this_machine(usable, usable=usable)


def divide(placed: Mapping[str, PlacedCores], names: Iterable[str], machine: Machine) -> DividedCores:
    """Return the CPUs of each version.

    Versions without placed cores run on the cores that no other version has, or on all if there are none.

    Parameters
    ----------
    placed : mapping of str to PlacedCores
        By `model/version`; versions with equal lists share their cores.
    names : iterable of str
        All versions of the machine.
    machine : Machine
    """
    wanted = {name: placed[name] for name in names if name in placed and placed[name].cores}
    if not wanted:
        return DividedCores({})
    there = len(machine.cores)
    lists = {cores.core_list: _indices(cores) for cores in wanted.values()}
    if any(not indices or indices[-1] >= there for indices in lists.values()):
        lists, missing = _fit({cores.core_list: cores.cores for cores in wanted.values()}, there)
    else:
        missing = 0
    given = {name: lists[cores.core_list] for name, cores in wanted.items() if lists[cores.core_list]}
    free = sorted(set(range(there)) - {core for cores in given.values() for core in cores})
    fault = ""
    if missing:
        rest = "those that are left" if free else "all"
        fault = f"{there} cores, expected {missing} more; versions without room share {rest}"
    if free:
        given |= {name: tuple(free) for name in names if name not in given}
    cpus = {
        name: format_cpus({cpu for core in cores for cpu in machine.cores[core].cpus}) for name, cores in given.items()
    }
    return DividedCores(cpus, fault)


def with_cores(body: Mapping[str, Any], desired: Mapping[str, Any], cpus: Mapping[str, str], count: int) -> Json:
    """Return a `desired.json` in which versions have their CPUs, unless an operator has given them others.

    Parameters
    ----------
    body : dict
        What the hosts are to serve.
    desired : dict
        The proxy's state, which tells an operator's CPUs from those of an earlier placement.
    cpus : mapping of str to str
        By `model/version`; the others use all CPUs.
    count : int
        Number of CPUs of the machine.
    """
    models = {}
    for name, model in body["models"].items():
        asked = desired["models"].get(name, {}).get("versions", {})
        versions = {}
        for number, entry in model["versions"].items():
            own = asked.get(number, {}).get("cpuset")
            found = {key: value for key, value in entry.items() if key != "cpuset"}
            given = own or cpus.get(f"{name}/{number}")
            # Also for versions that use all CPUs, so that they are not loaded again when they get cores of their own.
            threads = None if own or not cpus else _threads(entry, count)
            if threads is not None:
                found["config"] = {**entry.get("config", {}), "worker_threads": threads}
            versions[number] = found | ({"cpuset": given} if given else {})
        models[name] = {**model, "versions": versions}
    return {**body, "models": models}


def _threads(entry: Mapping[str, Any], count: int) -> int | None:
    """Return the number of threads of a version's sessions, for the largest number of CPUs that it may ever get."""
    given = {key: entry[key] for key in ("config", "batching") if key in entry}
    try:
        return worker_threads(Settings.model_validate(given), count)
    except ValidationError:
        return None


def _indices(cores: PlacedCores) -> tuple[int, ...]:
    try:
        return parse_cpus(cores.core_list)
    except MachineError:
        return ()


def _fit(sizes: Mapping[str, int], there: int) -> tuple[dict[str, tuple[int, ...]], int]:
    """Return neighboring cores for each list, the largest first, and the number of cores that are missing."""
    found: dict[str, tuple[int, ...]] = {}
    start = missing = 0
    for name, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        if start + size > there:
            found[name], missing = (), missing + size
            continue
        found[name] = tuple(range(start, start + size))
        start += size
    return found, max(0, missing - (there - start))
