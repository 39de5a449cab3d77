# SPDX-License-Identifier: Apache-2.0
"""Which cores: whole ones, a pool on one NUMA node wherever it fits."""

from __future__ import annotations

from collections.abc import Sequence

from cost_model.machine import Machine


def place(machine: Machine, counts: Sequence[int]) -> list[tuple[int, ...]]:
    """Choose cores for pools of these sizes, whose sum is at most the number of cores.

    The largest first; each on the node that it leaves the fewest cores over on, and across nodes only if it fits on
    none. A pool keeps neighbours.

    Returns
    -------
    chosen : list of tuple of int
        Places in `machine.cores`, in the order of `counts`.
    """
    free = {node: [i for i, core in enumerate(machine.cores) if core.node == node] for node in machine.nodes}
    chosen: list[tuple[int, ...]] = [()] * len(counts)
    for number in sorted(range(len(counts)), key=lambda one: (-counts[one], one)):
        wanted = counts[number]
        fitting = [node for node in free if len(free[node]) >= wanted]
        taken: list[int] = []
        if fitting:
            node = min(fitting, key=lambda one: (len(free[one]), one))
            taken, free[node] = free[node][:wanted], free[node][wanted:]
        else:
            for node in sorted(free, key=lambda one: (-len(free[one]), one)):
                part = free[node][: wanted - len(taken)]
                taken, free[node] = taken + part, free[node][len(part) :]
        chosen[number] = tuple(sorted(taken))
    return chosen
