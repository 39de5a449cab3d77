# SPDX-License-Identifier: Apache-2.0
"""Check epochs of a timeline against what hosts report."""

from __future__ import annotations

from collections.abc import Iterable

from serving_proxy.counters.stats_file import live_state
from serving_proxy.errors import PreconditionError
from serving_proxy.records.hosts import HostSeen


def check_epoch(hosts: Iterable[HostSeen], model: str, number: int, epoch: int) -> None:
    """Check that every host that serves a version can return to an epoch.

    Raises
    ------
    PreconditionError
        A host has not reached the epoch, or no longer has it.
    """
    for host in hosts:
        live = live_state(host.stats, model, number) if host.alive else None
        if live is None:
            continue
        oldest, newest = live["oldest_epoch"], live["newest_epoch"]
        if not oldest <= epoch <= newest:
            raise PreconditionError(
                f"{model}/{number}: epoch {epoch} is not on host {host.name}, expected {oldest} to {newest}"
            )
