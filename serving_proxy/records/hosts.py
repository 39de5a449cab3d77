# SPDX-License-Identifier: Apache-2.0
"""What hosts report, and what it says of a version as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from serving_proxy.records.states import State

HUNG = "hung"
# How `warmup` of actual.json ends then; libprocessor/src/runtime/version/warmup.cc writes it.
_NOT_WARMED_UP = "; not warmed up"
_MOST_SHOWN = 300
_GOING_DOWN = "every host is going down"


@dataclass(frozen=True)
class VersionSeen:
    """A version as one host has it.

    Attributes
    ----------
    state : str
        `loading`, `warming`, `ready`, `draining` or `failed`.
    error : str or None
        Why it failed, or what of its settings is not in force.
    details : dict
        The whole entry of `actual.json`.
    replacement : VersionSeen or None
        What is to take its place under the same number.
    """

    state: str
    path: str | None = None
    error: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    replacement: VersionSeen | None = None

    @property
    def why_not_warmed_up(self) -> str:
        """The fault of the request that the host made up to warm it up, shortened; empty if it was warmed up."""
        warmup = " ".join(str(self.details.get("warmup") or "").split())
        if not warmup.endswith(_NOT_WARMED_UP):
            return ""
        fault = warmup.removesuffix(_NOT_WARMED_UP)
        return (fault if len(fault) <= _MOST_SHOWN else fault[:_MOST_SHOWN] + "...") + _NOT_WARMED_UP


@dataclass(frozen=True)
class HostSeen:
    """A host as its files show it.

    Attributes
    ----------
    alive : bool
        Its process runs and holds its lock.
    state : str
        `starting`, `ready` or `draining`; `hung` if it gives no sign of life.
    models : dict
        Model, version, what it says of it.
    stats : dict
        Its statistics as they were written last, with those of shadow traffic under `shadow`.
    counted_at : float [s]
        When they were written, by the file system's clock.
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
    counted_at: float = 0.0


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

    It has failed if it has on one of them, and is ready only if it is on all of them. A host that is going down, or
    does not respond, does not count, nor does another folder under the same number, which it is about to replace.
    """
    live = [host for host in hosts if host.alive]
    if not live:
        return Seen(State.STOPPED, "no host is running")
    serving = [host for host in live if host.state not in {"draining", HUNG}]
    if not serving:
        return Seen(State.LOADING, "no host responds" if any(host.state == HUNG for host in live) else _GOING_DOWN)
    entries = [(host.name, host.models.get(model, {}).get(number)) for host in serving]
    if all(entry is None for _, entry in entries):
        return Seen(State.STOPPED, "no host has it yet")
    seen = [_on_host(name, entry, path) for name, entry in entries]
    return min(seen, key=lambda one: (_RANK[one.state], not one.reason))


# The least of what hosts say is what holds.
_RANK = {State.FAILED: 0, State.LOADING: 1, State.WARMING: 2, State.READY: 3}
_STATES = {"failed": State.FAILED, "warming": State.WARMING, "ready": State.READY}


def _on_host(name: str, entry: VersionSeen | None, path: str | None) -> Seen:
    if entry is not None and path is not None and entry.path not in {None, path}:
        entry = entry.replacement
    if entry is None:
        return Seen(State.LOADING, f"on {name}")
    state = _STATES.get(entry.state, State.LOADING)
    if state == State.FAILED:
        return Seen(state, f"{name}: {entry.error or 'no reason given'}")
    if state != State.READY:
        return Seen(state, f"on {name}")
    # It serves; what it does not do is said all the same.
    other = entry.replacement
    unlike = "" if other is None else f"other settings are {other.state} {other.error or ''}".strip()
    lacking = "; ".join(filter(None, (entry.error, unlike, entry.why_not_warmed_up)))
    return Seen(state, f"{name}: {lacking}" if lacking else "")


def failed_anywhere(hosts: Sequence[HostSeen], model: str, number: int) -> bool:
    """Say whether a live host has a version that failed."""
    entries = [host.models.get(model, {}).get(number) for host in hosts if host.alive]
    return any(entry is not None and entry.state == "failed" for entry in entries)


def held_anywhere(hosts: Sequence[HostSeen], model: str, number: int) -> bool:
    """Say whether a live host still has a version, in whatever state."""
    return any(host.alive and number in host.models.get(model, {}) for host in hosts)
