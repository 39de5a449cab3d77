# SPDX-License-Identifier: Apache-2.0
"""What hosts report, and what it says of a version as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from serving_proxy.lifecycle.states import State


@dataclass(frozen=True)
class VersionSeen:
    """A version as one host has it.

    Attributes
    ----------
    state : str
        `loading`, `warming`, `ready`, `draining` or `failed`.
    details : dict
        The whole entry of `actual.json`.
    """

    state: str
    path: str | None = None
    error: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HostSeen:
    """A host as its files show it.

    Attributes
    ----------
    alive : bool
        Its process runs and holds its lock.
    state : str
        `starting`, `ready` or `draining`.
    models : dict
        Model, version, what it says of it.
    stats : dict
        Its statistics as they were written last.
    """

    name: str
    alive: bool
    pid: int = 0
    state: str = "starting"
    generation: int = 0
    desired_error: str | None = None
    started: str = ""
    cpus: str = ""
    endpoints: dict[str, str] = field(default_factory=dict)
    models: dict[str, dict[int, VersionSeen]] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """A version as all live hosts have it.

    Attributes
    ----------
    state : State
        `loading`, `warming`, `ready`, `failed`, or `stopped` where no host has it.
    """

    state: State
    reason: str = ""


def observe(hosts: Sequence[HostSeen], model: str, number: int, path: str | None) -> Seen:
    """Sum up what the live hosts say of a version.

    It has failed if it has on one of them, and is ready only if it is on all of them. A host that is going down does
    not count, nor does a version that another folder under the same number is about to replace.
    """
    live = [host for host in hosts if host.alive]
    found = {host.name: one for host in live if (one := host.models.get(model, {}).get(number)) is not None}
    if not found and not any(host.state != "draining" for host in live):
        return Seen(State.STOPPED, "no host is running")
    serving = [host.name for host in live if host.state != "draining"]
    for name in serving:
        one = found.get(name)
        if one is not None and one.state == "failed":
            return Seen(State.FAILED, f"{name}: {one.error or 'no reason given'}")
    if not found:
        return Seen(State.STOPPED, "no host has it yet")
    order = {"loading": State.LOADING, "draining": State.LOADING, "warming": State.WARMING, "ready": State.READY}
    states = []
    for name in serving:
        one = found.get(name)
        replaced = one is not None and path is not None and one.path not in {None, path}
        states.append((State.LOADING if one is None or replaced else order.get(one.state, State.LOADING), name))
    if not states:
        return Seen(State.LOADING, "every host is going down")
    rank = [State.LOADING, State.WARMING, State.READY]
    state, name = min(states, key=lambda one: rank.index(one[0]))
    return Seen(state, "" if state == State.READY else f"on {name}")


def held_anywhere(hosts: Sequence[HostSeen], model: str, number: int) -> bool:
    """Say whether a live host still has a version, in whatever state."""
    return any(host.alive and number in host.models.get(model, {}) for host in hosts)
