# SPDX-License-Identifier: Apache-2.0
"""Choose cores: whole ones, and all of a pool on one NUMA node if possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cost_model.machine import Machine


def place(machine: Machine, counts: Sequence[int], fewest: Callable[[int], int]) -> list[tuple[int, ...]]:
    """Choose cores for pools of these sizes; the sum of the sizes is at most the number of cores.

    The largest pool comes first; each goes to the node on which it leaves the fewest cores unused. A pool that fits on
    no node gets the free cores of the node with the most room if these are at least `fewest` (of a pool, by its index),
    and otherwise spans nodes. A pool keeps neighboring cores.

    Returns
    -------
    chosen : list of tuple of int
        Indices into `machine.cores`, in the order of `counts`.
    """
    free = {node: [i for i, core in enumerate(machine.cores) if core.node == node] for node in machine.nodes}
    chosen: list[tuple[int, ...]] = [()] * len(counts)
    for number in sorted(range(len(counts)), key=lambda index: (-counts[index], index)):
        wanted = counts[number]
        fitting = [node for node in free if len(free[node]) >= wanted]
        taken: list[int] = []
        if fitting:
            node = min(fitting, key=lambda node: (len(free[node]), node))
            taken, free[node] = free[node][:wanted], free[node][wanted:]
        else:
            order = sorted(free, key=lambda node: (-len(free[node]), node))
            if fewest(number) <= len(free[order[0]]):
                wanted = len(free[order[0]])
            for node in order:
                part = free[node][: wanted - len(taken)]
                taken, free[node] = taken + part, free[node][len(part) :]
        chosen[number] = tuple(sorted(taken))
    return chosen
