# SPDX-License-Identifier: Apache-2.0
"""Say beforehand which machines lack memory for the models that are placed there. A pure function.

Only a host knows for certain, because tables that versions share are in memory once; so nothing is refused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from serving_proxy.records.hosts import HostSeen
from serving_proxy.records.models import Model
from serving_proxy.records.placement import Placement

# Hosts use so much of a machine's memory.
_USED = 0.9


def lacking_memory(
    placement: Placement, models: Mapping[str, Model], hosts: Sequence[HostSeen], memory: Mapping[str, int]
) -> list[str]:
    """Return a sentence for each machine that seems to have too little memory for what it is to load.

    Parameters
    ----------
    placement : Placement
    models : mapping of str to Model
    hosts : sequence of HostSeen
    memory : mapping of str to int [bytes]
        Memory of the machines that report it.
    """
    used: dict[str, float] = {}
    sizes: dict[tuple[str, int], float] = {}
    there: set[tuple[str, str, int]] = set()
    for host in hosts:
        for name, number, size in _sizes(host) if host.alive else ():
            used[host.machine] = used.get(host.machine, 0.0) + size
            sizes[name, number] = max(sizes.get((name, number), 0.0), size)
            there.add((host.machine, name, number))
    missing: dict[str, dict[str, float]] = {}
    for name, placed in placement.models.items():
        model = models.get(name)
        for number, version in {} if model is None else model.versions.items():
            if model is not None and version.desired and (name, number) in sizes:
                for machine in placed.target(model, number):
                    if (machine, name, number) not in there:
                        missing.setdefault(machine, {})[f"{name}/{number}"] = sizes[name, number]
    found = []
    for machine, needs in sorted(missing.items()):
        free = _USED * memory.get(machine, 0) - used.get(machine, 0.0)
        if memory.get(machine) and sum(needs.values()) > free:
            found.append(
                f"{machine}: about {sum(needs.values()) / 1e9:.1f} GB for {', '.join(sorted(needs))}, expected at most "
                f"the {max(0.0, free) / 1e9:.1f} GB that are free; what does not fit stays where it is"
            )
    return found


def _sizes(host: HostSeen) -> Iterable[tuple[str, int, float]]:
    """Yield the memory of each version of a host that reports it [bytes]."""
    for name, versions in host.models.items():
        for number, seen in versions.items():
            size = seen.details.get("memory_bytes")
            if isinstance(size, int) and size > 0 and seen.state != "failed":
                yield name, number, float(size)
