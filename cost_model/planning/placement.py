# SPDX-License-Identifier: Apache-2.0
"""Which cores: whole ones, a pool on one NUMA node wherever it fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cost_model.machine import Machine


def place(machine: Machine, counts: Sequence[int], fewest: Callable[[int], int]) -> list[tuple[int, ...]]:
    """Choose cores for pools of these sizes, whose sum is at most the number of cores.

    The largest first; each on the node that it leaves the fewest cores over on. One that fits on none has what is free
    on the node with the most room, if `fewest` (of a pool, by its place) are there, and else spans nodes. A pool keeps
    neighbors.

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
            order = sorted(free, key=lambda one: (-len(free[one]), one))
            if fewest(number) <= len(free[order[0]]):
                wanted = len(free[order[0]])
            for node in order:
                part = free[node][: wanted - len(taken)]
                taken, free[node] = taken + part, free[node][len(part) :]
        chosen[number] = tuple(sorted(taken))
    return chosen
