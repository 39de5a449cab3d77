# SPDX-License-Identifier: Apache-2.0
"""Epochs of a timeline as hosts report them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving_proxy.artifacts.timelines import is_copy
from serving_proxy.counters.stats_file import live_state
from serving_proxy.errors import PreconditionError
from serving_proxy.records.hosts import HUNG, HostSeen
from serving_proxy.records.models import Version


@dataclass(frozen=True)
class ServedEpochs:
    """The epochs of a version on all hosts that serve it.

    Attributes
    ----------
    epoch : int
        The earliest that a host serves.
    last : int
        The latest that a host serves.
    oldest : int
        The earliest to which all hosts can return.
    """

    epoch: int
    last: int
    oldest: int


def served_epochs(hosts: Iterable[HostSeen], model: str, number: int) -> ServedEpochs | None:
    """Return the epochs of a version; None if no host reports any."""
    found = [live for _, live in _live_states(hosts, model, number)]
    if not found:
        return None
    served = [live["epoch"] for live in found]
    return ServedEpochs(min(served), max(served), max(live["oldest_epoch"] for live in found))


def check_epoch(hosts: Iterable[HostSeen], model: str, number: int, epoch: int) -> None:
    """Check that every host that serves a version can return to an epoch.

    Raises
    ------
    PreconditionError
        A host has not reached the epoch, or no longer has it.
    """
    for name, live in _live_states(hosts, model, number):
        oldest, newest = live["oldest_epoch"], live["newest_epoch"]
        if not oldest <= epoch <= newest:
            raise PreconditionError(
                f"{model}/{number}: epoch {epoch} is not on host {name}, expected {oldest} to {newest}"
            )


def hosts_that_lack(hosts: Sequence[HostSeen], model: str, number: int, timeline: str) -> list[str]:
    """Return the live hosts that have not reported yet that a version follows a timeline.

    Raises
    ------
    PreconditionError
        The timeline has a fault; the version serves the epoch before it.
    """
    found = _live_states(hosts, model, number)
    reported = {name: live for name, live in found if _is_same(live.get("timeline"), timeline)}
    for name, live in reported.items():
        if live.get("error"):
            raise PreconditionError(
                f"{model}/{number}: ready at epoch {live['epoch']}, but {name} does not follow {timeline}: "
                f"{live['error']}"
            )
    return [host.name for host in hosts if host.alive and host.state != HUNG and host.name not in reported]


def follows_well(hosts: Sequence[HostSeen], model: str, version: Version) -> bool:
    """Return whether all hosts follow a version's timeline without a fault, or it follows none."""
    timeline = version.settings.follow
    try:
        return timeline is None or not hosts_that_lack(hosts, model, version.number, timeline)
    except PreconditionError:
        return False


def _is_same(reported: str | None, timeline: str) -> bool:
    """Return whether a host follows a timeline; the copies of one in a store have the same name on all machines."""
    if reported == timeline:
        return True
    return reported is not None and is_copy(Path(timeline)) and Path(reported).name == Path(timeline).name


def _live_states(hosts: Iterable[HostSeen], model: str, number: int) -> list[tuple[str, dict[str, Any]]]:
    """Return the name of each live host on which a version follows a timeline, and the state there."""
    found = [(host.name, live_state(host.stats, model, number)) for host in hosts if host.alive]
    return [(name, live) for name, live in found if live is not None]
