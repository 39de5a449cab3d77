# SPDX-License-Identifier: Apache-2.0
r"""Decide which models share a pool.

One pool serves the sum of its members' traffic, whose fluctuations even out. But all members wait behind the longest
requests, and the member with the shortest SLO decides how many cores all of them need. Variants therefore start in one
pool, and some of them move to a second pool if two pools need fewer cores than one, at the growth that the machine has
room for. Candidates follow the order of the time that a member can wait (SLO minus p99 of its service time): the
k tightest, the k loosest, and the k with the longest requests. Meeting more SLOs counts before saving cores. For this
reason the models that miss their SLO only because they share the pool are candidates too: all of them, and only the
tightest of them.

This is a heuristic; `tests/cost_model/planning/test_planner.py` compares it with all partitions on small cases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cost_model.planning.sharing import total_need
from cost_model.planning.sizing import Sizing
from cost_model.queueing import Member

_CUTS = 3
Make = Callable[[Sequence[Member]], Sizing]


def split(pool: Sizing, scale: float, make: Make) -> list[Sizing]:
    """Split a pool in two if this meets more SLOs, or as many with fewer cores at `scale` times the rates.

    Otherwise the pool is returned unchanged.
    """
    if len(pool.members) < 2:
        return [pool]
    best, least = [pool], (len(pool.crowded), total_need([pool], scale))
    for part in _parts(pool):
        rest = [member for member in pool.members if member not in part]
        halves = [make(part), make(rest)]
        crowded = sum(len(half.crowded) for half in halves)
        # Cores below the load are never enough: this test alone excludes most candidates.
        if (crowded, sum(int(scale * half.load) + 1 for half in halves)) >= least:
            continue
        cost = (crowded, total_need(halves, scale))
        if cost < least:
            best, least = halves, cost
    return best


def _parts(pool: Sizing) -> list[list[Member]]:
    """Return the sets of members that could leave the pool, without repetition."""
    members = pool.members
    slack = [
        member.model.slo_p99_ms * 1e3 - pool.pool.member_service(place).quantile(0.99)
        for place, member in enumerate(members)
    ]
    length = [member.model.points().mean for member in members]
    found: list[list[Member]] = []
    for key in (slack, length):
        order = [members[place] for place in np.argsort(key, kind="stable")]
        ranked = np.sort(key)
        # Cut where neighbors differ most, in ratio or in sign.
        gaps = np.diff(np.arcsinh(ranked / 100.0))
        for cut in np.sort(np.argsort(-gaps, kind="stable")[:_CUTS]):
            part = order[: cut + 1]
            if len(part) < len(members) and part not in found and order[cut + 1 :] not in found:
                found.append(part)
    if pool.crowded:
        crowded = [place for place in np.argsort(slack, kind="stable") if pool.names[place] in pool.crowded]
        for places in (crowded, crowded[:1]):
            part = [members[place] for place in places]
            if len(part) < len(members) and part not in found:
                found.append(part)
    return found
