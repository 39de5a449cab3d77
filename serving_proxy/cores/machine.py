# SPDX-License-Identifier: Apache-2.0
"""The machine's CPUs: their topology, their load, and the versions that run on them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cost_model.cpu_time import Ticks, read_ticks
from serving_proxy.records.hosts import HostSeen
from serving_proxy.records.models import Model
from serving_proxy.system.cpus import read_cpus

_SYSTEM = Path("/sys/devices/system/cpu")
_STAT = Path("/proc/stat")


@dataclass(frozen=True)
class Cpu:
    """A logical CPU; CPUs of one core share its units."""

    number: int
    core: int
    package: int


@dataclass(frozen=True)
class Owner:
    """A version that runs on some CPUs.

    Attributes
    ----------
    cpus : tuple of int
        As the host reports.
    wanted : tuple of int or None
        The requested CPUs, if they differ.
    own : bool
        The version was given these CPUs; otherwise it shares all CPUs of its host.
    """

    host: str
    model: str
    version: int
    cpus: tuple[int, ...]
    wanted: tuple[int, ...] | None
    own: bool


def topology(numbers: Iterable[int] | None = None, folder: Path = _SYSTEM) -> tuple[Cpu, ...]:
    """Return the CPUs that this process may use, or those given."""
    wanted = os.sched_getaffinity(0) if numbers is None else numbers
    found = []
    for number in sorted(wanted):
        place = folder / f"cpu{number}" / "topology"
        found.append(Cpu(number, _read_int(place / "core_id", number), _read_int(place / "physical_package_id", 0)))
    return tuple(found)


def owners(
    hosts: Sequence[HostSeen], models: Mapping[str, Model], cpusets: Mapping[str, Mapping[str, str]] | None = None
) -> list[Owner]:
    """Return which version runs on which CPUs, as live hosts report.

    Parameters
    ----------
    hosts, models
    cpusets : mapping of host to versions and CPUs, optional
        The CPUs that `desired.json` gives versions instead of their own setting.
    """
    found = []
    for host in hosts:
        if not host.alive:
            continue
        shared = _read_groups(host.cpus)
        given = (cpusets or {}).get(host.name, {})
        for name, versions in sorted(host.models.items()):
            for number, seen in sorted(versions.items()):
                has = _read_groups(str(seen.details.get("cpuset") or ""))
                model = models.get(name)
                version = model.versions.get(number) if model is not None else None
                setting = version.settings.cpuset if version is not None else None
                asked = _read_groups(given.get(f"{name}/{number}") or setting or "")
                cpus = has or shared
                if seen.state not in {"failed", "loading"} and cpus:
                    wanted = tuple(sorted(asked)) if asked and asked != cpus else None
                    own = bool(has) and (has != shared or bool(asked))
                    found.append(Owner(host.name, name, number, tuple(sorted(cpus)), wanted, own))
    return found


class Load:
    """The load of each CPU since the last call, from the kernel's counters."""

    def __init__(self, file: Path = _STAT) -> None:
        self._file = file
        self._last: dict[int, Ticks] = {}

    def percent(self) -> dict[int, float]:
        """Return the share of the time [%] that each CPU was busy; empty at the first call."""
        now: dict[int, Ticks] = {}
        with suppress(OSError):
            now = read_ticks(self._file)
        found = {}
        for cpu, ticks in now.items():
            before = self._last.get(cpu, ticks)
            if ticks.total > before.total:
                found[cpu] = round(100 * (ticks.busy - before.busy) / (ticks.total - before.total), 1)
        self._last = now
        return found


def _read_groups(text: str) -> set[int]:
    """Read CPUs of one or more groups: `0-1;2`."""
    return {cpu for group in text.split(";") for cpu in read_cpus(group)}


def _read_int(path: Path, otherwise: int) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return otherwise
