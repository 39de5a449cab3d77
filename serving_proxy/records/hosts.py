# SPDX-License-Identifier: Apache-2.0
"""The hosts' reports, and the state of a version that follows from all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from serving_proxy.records.states import State

HUNG = "hung"
# End of `warmup` in actual.json if the warm-up failed; libprocessor/src/runtime/version/warmup.cc writes it.
_NOT_WARMED_UP = "; not warmed up"
_MOST_SHOWN = 300
_GOING_DOWN = "every host is shutting down"


@dataclass(frozen=True)
class VersionSeen:
    """A version as one host reports it.

    Attributes
    ----------
    state : str
        `loading`, `warming`, `ready`, `draining` or `failed`.
    error : str or None
        Why it failed, or which of its settings are not in force; while it is loaded again: why it failed before.
    details : dict
        The whole entry of `actual.json`.
    replacement : VersionSeen or None
        The version that is to replace it under the same number.
    """

    state: str
    path: str | None = None
    error: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    replacement: VersionSeen | None = None

    @property
    def has_failed(self) -> bool:
        """Return whether the host could not load it, also while it tries again."""
        return self.state == "failed" or (self.state in {"loading", "warming"} and bool(self.error))

    @property
    def why_not_warmed_up(self) -> str:
        """Return the shortened error of the warm-up request that the host generated; "" if it was warmed up."""
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
        Its process runs and has its lock.
    state : str
        `starting`, `ready` or `draining`; `hung` if it gives no sign of life.
    models : dict
        Model, version, its report.
    stats : dict
        The newest statistics, with those of mirrored traffic under `shadow`.
    counted_at : float [s]
        When they were written, by the file system's clock.
    machine : str
        The machine whose agent reports it; "": this one.
    address : str
        Address at which clients reach that machine; "": not known.
    version : str
        Release of its library; "": it does not report it.
    features : frozenset of str or None
        What it can do (`serving_proxy.records.features`); None: it does not report it.
    waiting : str or None
        Why the writer of its `desired.json` has no state yet.
    away : bool
        It was alive when its agent reported last; nobody knows whether it still is, so `alive` is false.
    refuses : bool
        Its agent refuses the states of this proxy.
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
    machine: str = ""
    address: str = ""
    version: str = ""
    features: frozenset[str] | None = None
    waiting: str | None = None
    away: bool = False
    refuses: bool = False


@dataclass(frozen=True)
class Seen:
    """The state of a version on all live hosts.

    Attributes
    ----------
    state : State
        `loading`, `warming`, `ready`, `failed`, or `stopped` if no host has it.
    """

    state: State
    reason: str = ""


def observe(hosts: Sequence[HostSeen], model: str, number: int, path: str | None) -> Seen:
    """Summarize the live hosts' reports of a version.

    It is ready only if it is ready on all of them. It has failed if it has failed on one host and all others have
    tried it, too: a machine without the right to the files, or without room, answers long before the others, and a
    deployment that others can serve must not end because of that. Until then the reason names the host that failed.

    A host that tries again has still failed until the version is ready there. Otherwise a version that takes long to
    fail would never be `failed` on many hosts, since one of them always loads it.

    A host that is shutting down or does not respond is ignored. So is another folder under the same number, which the
    host is about to replace.
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
    found = min(seen, key=lambda version: (_RANK[version.state], not version.reason))
    failed = [version.reason for version in seen if version.state == State.FAILED]
    if not failed:
        return found
    others = f"; failed on {len(failed) - 1} more" if len(failed) > 1 else ""
    if found.state != State.FAILED:
        return Seen(found.state, f"{found.reason}; failed on {failed[0]}{others}")
    ready = len(seen) - len(failed)
    return Seen(State.FAILED, f"{failed[0]}{others}" + (f"; ready on {ready} of {len(seen)} hosts" if ready else ""))


# The lowest rank of all hosts is the state of the version.
_RANK = {State.LOADING: 0, State.WARMING: 1, State.FAILED: 2, State.READY: 3}
_STATES = {"warming": State.WARMING, "ready": State.READY}


def _on_host(name: str, entry: VersionSeen | None, path: str | None) -> Seen:
    if entry is not None and path is not None and entry.path not in {None, path}:
        entry = entry.replacement
    if entry is None:
        return Seen(State.LOADING, f"on {name}")
    if entry.has_failed:
        return Seen(State.FAILED, f"{name}: {entry.error or 'no reason given'}")
    state = _STATES.get(entry.state, State.LOADING)
    if state != State.READY:
        return Seen(state, f"on {name}")
    # The version is served, but what it lacks is reported all the same.
    other = entry.replacement
    kind = "" if other is None else "failed" if other.has_failed else other.state
    unlike = "" if other is None else f"its new settings are {kind} {other.error or ''}".strip()
    lacking = "; ".join(filter(None, (entry.error, unlike, entry.why_not_warmed_up)))
    return Seen(state, f"{name}: {lacking}" if lacking else "")


def failed_anywhere(hosts: Sequence[HostSeen], model: str, number: int) -> bool:
    """Return whether the version has failed on a live host.

    Hosts that refuse the desired state are left out: they report what they followed before, for as long as they refuse.
    """
    following = [host for host in hosts if host.alive and not host.refuses and host.desired_error is None]
    entries = [host.models.get(model, {}).get(number) for host in following]
    return any(entry is not None and entry.has_failed for entry in entries)


def held_anywhere(hosts: Sequence[HostSeen], model: str, number: int) -> bool:
    """Return whether a live host still has the version, in any state."""
    return any(host.alive and number in host.models.get(model, {}) for host in hosts)
