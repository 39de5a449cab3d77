# SPDX-License-Identifier: Apache-2.0
"""The states of a version, and the table of permitted transitions."""

from __future__ import annotations

from collections import deque
from enum import StrEnum

from serving_proxy.errors import PreconditionError


class State(StrEnum):
    """The state of a version; when it is published, it has been reached already."""

    NEW = "new"
    """Added; nothing has been checked."""
    VALIDATING = "validating"
    """Its files, its place and its signature are being checked."""
    OPTIMIZING = "optimizing"
    """`graph-tools optimize` is writing the model that will be served."""
    LOADING = "loading"
    """It is in `desired.json`; not every host has it in memory."""
    WARMING = "warming"
    """Hosts run its warm-up requests."""
    READY = "ready"
    """Every live host serves it."""
    DRAINING = "draining"
    """It is no longer in `desired.json`; a host still has it for its last requests."""
    STOPPED = "stopped"
    """No host has it."""
    FAILED = "failed"
    """It cannot be served; the reason says why."""


_S = State

LEGAL: dict[State, frozenset[State]] = {
    _S.NEW: frozenset({_S.VALIDATING, _S.STOPPED, _S.FAILED}),
    # Back to new: the proxy stopped meanwhile and starts again.
    _S.VALIDATING: frozenset({_S.NEW, _S.OPTIMIZING, _S.LOADING, _S.STOPPED, _S.FAILED}),
    _S.OPTIMIZING: frozenset({_S.NEW, _S.LOADING, _S.STOPPED, _S.FAILED}),
    _S.LOADING: frozenset({_S.WARMING, _S.DRAINING, _S.FAILED}),
    # Back to loading: a host was restarted, or another one joined.
    _S.WARMING: frozenset({_S.LOADING, _S.READY, _S.DRAINING, _S.FAILED}),
    _S.READY: frozenset({_S.LOADING, _S.DRAINING, _S.FAILED}),
    # New: deployed again.
    _S.DRAINING: frozenset({_S.NEW, _S.STOPPED}),
    _S.STOPPED: frozenset({_S.NEW}),
    # Loading: a host that has not tried it yet joined, or a host has loaded it after all.
    _S.FAILED: frozenset({_S.NEW, _S.LOADING, _S.DRAINING, _S.STOPPED}),
}

GATED = frozenset({_S.NEW, _S.VALIDATING, _S.OPTIMIZING})
"""Not yet in `desired.json`: a job of the proxy takes it through the gates."""
SERVED = frozenset({_S.LOADING, _S.WARMING, _S.READY})
"""In `desired.json`."""
ACTIVE = GATED | SERVED
"""Deployed: ready, or on its way to be."""


def check(old: State, new: State) -> None:
    """Raise `PreconditionError` unless `new` may follow `old`."""
    if new not in LEGAL[old]:
        expected = " or ".join(sorted(LEGAL[old]))
        raise PreconditionError(f"state: {new} after {old}, expected {expected}")


def steps_between(old: State, new: State) -> tuple[State, ...]:
    """Return the states from `old` to `new`, `new` included, for an observer that has missed some; () if both are the
    same.

    Raises
    ------
    PreconditionError
        `new` cannot be reached without a failure or a new deployment.
    """
    if old == new:
        return ()
    queue: deque[tuple[State, tuple[State, ...]]] = deque([(old, ())])
    seen = {old}
    while queue:
        state, passed = queue.popleft()
        for following in sorted(LEGAL[state]):
            if following == new:
                return (*passed, new)
            # A failure or a new deployment is never assumed.
            if following not in seen and following not in {State.FAILED, State.NEW}:
                seen.add(following)
                queue.append((following, (*passed, following)))
    raise PreconditionError(f"state: {new} after {old}, expected a state that follows")
