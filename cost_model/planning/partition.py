# SPDX-License-Identifier: Apache-2.0
r"""Who shares with whom.

One pool serves the sum of its members' traffic, whose fluctuations even out; but all of its members wait behind the
longest requests, and the member with the tightest objective decides how many cores all of them need. So the variants
start in one pool, and a part leaves it where two pools need fewer cores than one, at the growth that the machine has
room for. Parts are looked for in the order of the time that a member can wait (objective less p99 of its service): the
k tightest, the k loosest, and the k whose requests are longest. Before the cores count the models that miss their
objective only because others share their pool: together and the tightest of them alone are parts too.

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
    """Split a pool in two if more objectives can be met then, or as many with fewer cores at `scale` times the rates.

    Else it is returned alone.
    """
    if len(pool.members) < 2:
        return [pool]
    best, least = [pool], (len(pool.crowded), total_need([pool], scale))
    for part in _parts(pool):
        rest = [member for member in pool.members if member not in part]
        halves = [make(part), make(rest)]
        crowded = sum(len(half.crowded) for half in halves)
        # Less than what is offered is never enough: most candidates need no more than this.
        if (crowded, sum(int(scale * half.load) + 1 for half in halves)) >= least:
            continue
        cost = (crowded, total_need(halves, scale))
        if cost < least:
            best, least = halves, cost
    return best


def _parts(pool: Sizing) -> list[list[Member]]:
    """Return candidates to leave the pool, without repetition."""
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
        # Cut where neighbors differ the most, in ratio or in sign.
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
