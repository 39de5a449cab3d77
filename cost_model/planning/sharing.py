# SPDX-License-Identifier: Apache-2.0
r"""Divide cores among pools.

**Objective.** The least growth :math:`\min_g s_g(k_g)` over the pools, where :math:`s_g(k)` is the factor by which the
rates of pool g can grow before k cores miss an SLO. A larger value means that the machine can serve more traffic of the
same mix within all SLOs, and that every model has more headroom.

**Proof.** :math:`s_g` never falls with k. Let s be the greatest value with :math:`\sum_g n_g(s) \le K`, where
:math:`n_g(s) = \min\{k: s_g(k) \ge s\}`. No division does better: one with a least growth s' > s has
:math:`k_g \ge n_g(s')` for every g, so that :math:`K \ge \sum k_g \ge \sum n_g(s') > K`. Giving one core at a time
to the pool with the least growth reaches the same s (marginal gain). Bisection of s needs fewer steps; the cores that
remain are then assigned by marginal gain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from cost_model.planning.sizing import Sizing

_STEPS = 7


def share_cores(pools: Sequence[Sizing], cores: int, floors: Sequence[int], low: float = 0.0) -> list[int]:
    """Divide `cores` so that the least growth is as large as possible.

    Parameters
    ----------
    pools : sequence of Sizing
    cores : int
        At least the sum of the floors.
    floors : sequence of int
        Fewest cores of each pool.
    low : float
        A growth that the floors are known to allow.
    """
    given = list(floors)
    load = sum(pool.load for pool in pools)
    if load > 0:
        high = cores / load
        highest = [cores] * len(pools)
        for _ in range(_STEPS):
            middle = (low + high) / 2
            needs = _needs(pools, middle, given, highest, cores)
            if needs == given == highest:
                break
            if sum(needs) <= cores:
                low, given = middle, needs
            else:
                high, highest = middle, [min(a, b) for a, b in zip(needs, highest, strict=True)]
    growth = [pool.growth(count) if len(pools) > 1 else 0.0 for pool, count in zip(pools, given, strict=True)]
    for _ in range(cores - sum(given)):
        # If several pools can grow equally, as without any traffic, the one with the fewest cores gets the next core.
        poorest = min(range(len(pools)), key=lambda place: (growth[place], given[place]))
        given[poorest] += 1
        growth[poorest] = pools[poorest].growth(given[poorest]) if len(pools) > 1 else 0.0
    return given


def _needs(pools: Sequence[Sizing], scale: float, least: Sequence[int], most: Sequence[int], cores: int) -> list[int]:
    """Return the need of each pool, or a number above all available cores as soon as the sum exceeds them."""
    needs = list(least)
    for place, pool in enumerate(pools):
        if least[place] < most[place]:
            needs[place] = pool.need(scale, least[place], most[place])
        if sum(needs) > cores:
            break
    return needs


def total_need(pools: Sequence[Sizing], scale: float) -> float:
    """Return the cores that pools need together; infinity if a pool cannot be served."""
    total = 0.0
    for pool in pools:
        need = pool.need(scale)
        total += need if need <= pool.most else math.inf
    return total
