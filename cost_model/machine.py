# SPDX-License-Identifier: Apache-2.0
"""Describe machines for plans: physical cores with their SMT siblings, NUMA nodes, memory."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cost_model._reading import Reader, describe, read_yaml, workload_file
from cost_model.errors import MachineError

_SYS = Path("/sys")
# Memory bandwidth of a node of a recent server, for machines that do not specify it.
_BANDWIDTH_GBS = 100.0


@dataclass(frozen=True)
class Core:
    """Describe a physical core: its CPUs (SMT siblings, the first one first) and its NUMA node."""

    cpus: tuple[int, ...]
    node: int


@dataclass(frozen=True)
class Machine:
    """Describe the cores that a plan may assign.

    Parameters
    ----------
    cores : tuple of Core
        Ordered by node, then by first CPU: neighbors in the tuple are neighbors on the machine.
    memory_bandwidth_gbs_per_node : float [GB/s]
    memory_gb : float [GB]
    notes : tuple of str
        Findings that changed the number of cores, such as a quota or missing siblings.
    """

    cores: tuple[Core, ...]
    memory_bandwidth_gbs_per_node: float = _BANDWIDTH_GBS
    memory_gb: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[int, ...]:
        """Return the NUMA nodes that have cores."""
        return tuple(sorted({core.node for core in self.cores}))

    @property
    def smt(self) -> int:
        """Return the largest number of CPUs that a core has."""
        return max(len(core.cpus) for core in self.cores)

    @staticmethod
    def even(
        cores: int,
        numa_nodes: int = 1,
        smt: int = 1,
        memory_bandwidth_gbs_per_node: float = _BANDWIDTH_GBS,
        memory_gb: float = 0.0,
    ) -> Machine:
        """Return a machine of equal nodes; second siblings are numbered after all first ones, as in Linux."""
        numbered = tuple(
            Core(tuple(number + sibling * cores for sibling in range(smt)), number * numa_nodes // cores)
            for number in range(cores)
        )
        return Machine(numbered, memory_bandwidth_gbs_per_node, memory_gb)


def parse_machine(data: object) -> Machine:
    """Parse a machine from a mapping.

    Either `cores` (a number) with `numa_nodes` and `smt`, or `cpus`, a list like "0-3,8" of this machine's CPUs; both
    with `memory_bandwidth_gbs_per_node` and `memory_gb`.

    Raises
    ------
    MachineError
        If a member is unknown or out of range, or a CPU is unknown, offline or not available to this process.
    """
    reader = Reader("machine", data, MachineError)
    if "cpus" in reader:
        found = this_machine(cpus=parse_cpus(str(reader.take("cpus"))))
        bandwidth = reader.number("memory_bandwidth_gbs_per_node", _BANDWIDTH_GBS, positive=True)
        memory_gb = reader.number("memory_gb", found.memory_gb)
        reader.end()
        return Machine(found.cores, bandwidth, memory_gb, found.notes)
    cores = reader.integer("cores", least=1, most=4096)
    nodes = reader.integer("numa_nodes", 1, least=1, most=cores)
    smt = reader.integer("smt", 1, least=1, most=8)
    bandwidth = reader.number("memory_bandwidth_gbs_per_node", _BANDWIDTH_GBS, positive=True)
    memory_gb = reader.number("memory_gb", 0.0)
    reader.end()
    return Machine.even(cores, nodes, smt, bandwidth, memory_gb)


def load_machine(path: str | Path) -> Machine:
    """Read a machine file: the mapping itself, or a file (a workload) that has it under `machine`; or `box128`."""
    place = workload_file(path)
    data = read_yaml(place, MachineError)
    try:
        return parse_machine(data["machine"] if isinstance(data, dict) and "machine" in data else data)
    except MachineError as error:
        error.args = (f"{place}: {error}",)
        raise


def parse_cpus(text: str) -> tuple[int, ...]:
    """Parse a list of CPUs in Linux's format: "0-3,8".

    Raises
    ------
    MachineError
        If the text is not such a list.
    """
    found: list[int] = []
    for part in text.replace("\n", "").split(","):
        first, dash, last = part.strip().partition("-")
        # str.isdigit also accepts other digits, such as '²'.
        numbers = part.isascii() and first.isdigit() and (last.isdigit() or not dash)
        if not numbers or (dash and int(last) < int(first)):
            raise MachineError(f"cpus: {describe(text)} found, expected CPUs and ranges like '0-3,8'")
        if int(last or first) > 65535:
            raise MachineError(f"cpus: CPU {last or first} found, expected numbers below 65536")
        found += range(int(first), int(last or first) + 1)
    return tuple(sorted(set(found)))


def this_machine(
    cpus: Iterable[int] | None = None,
    *,
    sys_root: Path = _SYS,
    usable: Iterable[int] | None = None,
    quota: float | None = None,
) -> Machine:
    """Describe the machine that this process runs on, limited to the CPUs that it may use.

    Parameters
    ----------
    cpus : iterable of int, optional
        Only these CPUs; by default all that the process may use.
    sys_root : Path
        Path of `/sys`.
    usable : iterable of int, optional
        Replaces the affinity of the process.
    quota : float, optional [CPUs]
        Replaces the quota of the cgroup; infinity for none.

    Raises
    ------
    MachineError
        If a CPU is unknown, offline, or not available to the process, or the quota is less than one CPU.
    """
    allowed = set(os.sched_getaffinity(0) if usable is None else usable)
    online = set(_cpu_list(sys_root / "devices/system/cpu/online") or sorted(allowed))
    wanted = allowed & online if cpus is None else set(cpus)
    _check_usable(wanted, allowed, online, sys_root)
    cores = _cores(wanted, sys_root)
    limit = _cgroup_quota(sys_root) if quota is None else quota
    if limit < 1:
        raise MachineError(
            f"cgroup: a quota of {limit:g} CPUs found, expected at least 1, because less stops a core during a request"
        )
    notes = []
    paid = max(1, math.floor(limit / max(len(core.cpus) for core in cores))) if math.isfinite(limit) else len(cores)
    if limit < sum(len(core.cpus) for core in cores[:paid]) or paid < len(cores):
        notes.append(
            f"the cgroup's quota allows {limit:g} of {len(wanted)} CPUs: {paid} of {len(cores)} cores are used"
        )
        cores = cores[:paid]
    for core in cores:
        siblings = set(_siblings(core.cpus[0], sys_root))
        if siblings - set(core.cpus):
            others = ", ".join(map(str, sorted(siblings - set(core.cpus))))
            notes.append(
                f"core of CPU {core.cpus[0]}: other processes may use its sibling CPU {others} and slow it down"
            )
    return Machine(tuple(cores), memory_gb=_memory_gb(), notes=tuple(notes))


def _check_usable(wanted: set[int], allowed: set[int], online: set[int], sys_root: Path) -> None:
    present = set(_cpu_list(sys_root / "devices/system/cpu/present") or sorted(online))
    for cpu in sorted(wanted):
        expected = f"one of {cpu_ranges(sorted(allowed & online))}"
        if cpu not in present:
            raise MachineError(f"cpus: CPU {cpu}, which this machine does not have, found, expected {expected}")
        if cpu not in online:
            raise MachineError(f"cpus: CPU {cpu}, which is offline, found, expected {expected}")
        if cpu not in allowed:
            raise MachineError(f"cpus: CPU {cpu}, which this process may not use, found, expected {expected}")
    if not wanted:
        raise MachineError("cpus: no CPU found that is online and may be used, expected at least one")


def _cores(cpus: set[int], sys_root: Path) -> list[Core]:
    nodes = {}
    for folder in sorted((sys_root / "devices/system/node").glob("node[0-9]*")):
        for cpu in _cpu_list(folder / "cpulist"):
            nodes[cpu] = int(folder.name.removeprefix("node"))
    cores = {}
    for cpu in sorted(cpus):
        siblings = tuple(sibling for sibling in _siblings(cpu, sys_root) if sibling in cpus)
        cores[siblings] = Core(siblings, nodes.get(cpu, 0))
    return sorted(cores.values(), key=lambda core: (core.node, core.cpus[0]))


def _siblings(cpu: int, sys_root: Path) -> tuple[int, ...]:
    return _cpu_list(sys_root / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or (cpu,)


def _cpu_list(path: Path) -> tuple[int, ...]:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return ()
    return parse_cpus(text) if text else ()


def cpu_ranges(cpus: Sequence[int]) -> str:
    """Return CPUs in Linux's list format."""
    parts: list[list[int]] = []
    for cpu in cpus:
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1].append(cpu)
        else:
            parts.append([cpu])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts) or "none"


def _cgroup_quota(sys_root: Path) -> float:
    """Return the CPU quota of this process's cgroup and those above it [CPUs]; infinity without a quota."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return math.inf
    least = math.inf
    for line in lines:
        _, controllers, group = line.split(":", 2)
        version_2 = not controllers
        if not version_2 and "cpu" not in controllers.split(","):
            continue
        root = sys_root / "fs/cgroup" / ("" if version_2 else "cpu")
        # In a container the path is often that of the host: then only the root exists.
        folders = [root, *(root / Path(*Path(group).parts[1 : n + 1]) for n in range(1, len(Path(group).parts)))]
        for folder in folders:
            least = min(least, _quota_2(folder) if version_2 else _quota_1(folder))
    return least


def _quota_2(folder: Path) -> float:
    try:
        quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return math.inf
    return math.inf if quota == "max" else int(quota) / int(period)


def _quota_1(folder: Path) -> float:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text(encoding="ascii"))
        period = int((folder / "cpu.cfs_period_us").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return math.inf
    return math.inf if quota <= 0 else quota / period


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
