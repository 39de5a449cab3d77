# SPDX-License-Identifier: Apache-2.0
"""Decide which replicas are started, drained and removed. Pure functions.

A replica is replaced by starting another one, and draining the old one once the new one is ready, so that there are
never fewer ready replicas than before. The engine decides where they run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving_proxy.replicas.records import PREFIX, ClusterSeen, ReplicaSeen

# Clients that were refused by an address try it again within this time, so only then another host may end.
SETTLED_S = 5.0
# More than wanted, while replicas are replaced.
_SURGE = 1
# A drain begins so much earlier than it must.
_MARGIN_S = 5.0
# A new replica that has no node after this time: there is no room for one more than wanted.
NO_ROOM_S = 30.0
# The engine notices within this time that a node is gone; an actor that has been silent for longer hangs.
HUNG_S = 90.0


@dataclass(frozen=True)
class Action:
    """What is to be done with a replica.

    Attributes
    ----------
    kind : str
        `create`, `drain`, `remove` or `restart`.
    name : str
    reason : str
    """

    kind: str
    name: str
    reason: str


def decide(wanted: int, spec: str, cluster: ClusterSeen, drain_s: float) -> list[Action]:
    """Return what is to be done now.

    Parameters
    ----------
    wanted : int
        Number of replicas.
    spec : str
        The specification that all replicas are to have.
    cluster : ClusterSeen
    drain_s : float [s]
        How long a host may take to finish its requests.
    """
    left = {node.id: node.left_s for node in cluster.nodes if node.drains}
    actions = [Action("remove", found.name, "drained") for found in cluster.replicas if found.drained]
    lost = [found for found in cluster.replicas if _is_lost(found)]
    actions += [Action("remove", found.name, f"never heard in {found.silent_s:.0f} s") for found in lost]
    outdated = [found for found in cluster.replicas if _is_pending(found) and found.spec != spec]
    actions += [Action("remove", found.name, "it has other options than the proxy") for found in outdated]
    active = [
        found
        for found in cluster.replicas
        if not found.drains and not found.drained and found not in lost and found not in outdated
    ]
    leaving = [found for found in active if found.answers and found.node in left]
    old = [found for found in active if found.answers and found.spec != spec and found not in leaving]
    kept = [found for found in active if found not in leaving and found not in old]
    actions += _hung(active)
    actions += _created(wanted, cluster.replicas, kept, old)
    ready = sum(_counts(found, kept) for found in active)
    for replica, reason in [
        *((found, "its node is being drained") for found in leaving),
        *((found, "it has other options than the proxy") for found in old),
        *((found, f"{wanted} replicas are wanted") for found in _surplus(wanted, kept) if not old and not leaving),
    ]:
        if not replica.answers:
            # It cannot drain. It has no requests either if it has no node; otherwise it may answer again.
            if _is_pending(replica):
                actions.append(Action("remove", replica.name, reason))
            continue
        seconds = left.get(replica.node)
        must = replica in leaving and seconds is not None and seconds < drain_s + _MARGIN_S
        if not replica.is_ready or ready > wanted or must or (replica in old and _has_no_room(wanted, ready, kept)):
            actions.append(Action("drain", replica.name, reason))
            ready -= _counts(replica, kept)
            if replica in old and ready < wanted:
                break
    return actions


def _is_pending(replica: ReplicaSeen) -> bool:
    """Return whether a replica that this driver has started waits for a node."""
    return bool(replica.spec) and not replica.node and not replica.answers


def _is_lost(replica: ReplicaSeen) -> bool:
    """Return whether a replica that an earlier driver has started hangs, or has waited too long for a node."""
    return not replica.spec and not replica.answers and replica.silent_s > HUNG_S


def _counts(replica: ReplicaSeen, kept: Sequence[ReplicaSeen]) -> bool:
    """Return whether clients reach a replica; those that are to end have been there for long enough."""
    return replica.is_ready and (replica.ready_s >= SETTLED_S or replica not in kept)


def _created(
    wanted: int, all_of_them: Sequence[ReplicaSeen], kept: Sequence[ReplicaSeen], old: Sequence[ReplicaSeen]
) -> list[Action]:
    """Start what is missing; those with other options count until they are replaced one by one."""
    missing = wanted - len(kept)
    if old:
        # Those that drain still need their room.
        ending = sum(found.drains and not found.drained for found in all_of_them)
        missing = min(missing, wanted + _SURGE - len(kept) - len(old) - ending)
    taken = {found.number for found in all_of_them}
    numbers = (number for number in range(len(taken) + max(0, missing)) if number not in taken)
    return [Action("create", f"{PREFIX}{next(numbers)}", "") for _ in range(missing)]


def _surplus(wanted: int, kept: Sequence[ReplicaSeen]) -> list[ReplicaSeen]:
    """Return those that are too many: first those that do not serve, then the highest numbers."""
    return sorted(kept, key=lambda found: (found.is_ready, -found.number))[: max(0, len(kept) - wanted)]


def _has_no_room(wanted: int, ready: int, kept: Sequence[ReplicaSeen]) -> bool:
    """Return whether a replica must go first, because the engine has no node for one more."""
    waits = any(not found.answers and found.silent_s > NO_ROOM_S for found in kept)
    return waits and wanted > 1 and ready >= wanted


def _hung(active: Sequence[ReplicaSeen]) -> list[Action]:
    return [
        Action("restart", found.name, f"no answer for {found.silent_s:.0f} s")
        for found in active
        if found.node and not found.answers and found.silent_s > HUNG_S
    ]
