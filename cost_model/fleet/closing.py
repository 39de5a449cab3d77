# SPDX-License-Identifier: Apache-2.0
"""Empty machines whose replicas fit elsewhere."""

from __future__ import annotations

import numpy as np

from cost_model.fleet.packing import Packing


def close_machines(packing: Packing, fixed: set[tuple[int, int]]) -> None:
    """Move all replicas of little used machines to other used or cheaper machines, as long as that saves cost.

    Parameters
    ----------
    packing : Packing
    fixed : set of (unit, machine)
        Replicas that stay where they are.
    """
    progress = True
    while progress:
        progress = False
        filled = 1 - packing.free["cores"] / packing.cores
        for machine in np.argsort(filled, kind="stable"):
            there = packing.residents[int(machine)]
            if there and not any((number, int(machine)) in fixed for number in there):
                progress |= _close(packing, int(machine))


def _close(packing: Packing, machine: int) -> bool:
    """Move all replicas from a machine if the machines that take them cost less; otherwise move none."""
    numbers = sorted(
        packing.residents[machine], key=lambda number: -float(packing.hosts[number][machine].cores[machine])
    )
    moved: list[tuple[int, int]] = []
    opened = 0.0
    for number in numbers:
        option = packing.remove(number, machine)
        possible = packing.fits(number, option) & packing.domain_room(number, option.replicas)
        possible[machine] = False
        used = packing.used
        possible &= used | (packing.cost + opened < packing.cost[machine])
        order = np.flatnonzero(possible)
        if not len(order):
            packing.add(number, machine, option)
            break
        to = int(order[np.argmin(packing.scores(number, option)[order])])
        opened += 0.0 if used[to] else float(packing.cost[to])
        packing.add(number, to, option)
        moved.append((number, to))
    if len(moved) == len(numbers) and opened < packing.cost[machine]:
        return True
    for number, to in reversed(moved):
        packing.add(number, machine, packing.remove(number, to))
    return False
