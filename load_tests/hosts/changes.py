# SPDX-License-Identifier: Apache-2.0
"""The changes under load: what a cycle of each kind does, by the proxy's own client, and when it took effect."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from load_tests.hosts.proxy import Proxy, Seen

__all__ = ["KINDS", "MODEL", "Changes", "Kind"]

MODEL = "ranking"
LARGE = "large"
_SETTLE_S = 0.2


def _is(seen: Seen, version: int, states: Sequence[str | None]) -> bool:
    return seen.states.get((LARGE, version)) in states


@dataclass
class Changes:
    """Makes changes and notes when they took effect.

    Attributes
    ----------
    moments : dict
        By the name of a switch, the Unix times at which the host made it.
    """

    proxy: Proxy
    model: Path
    large: Path
    config: dict[str, Any]
    cpus: list[int] = field(default_factory=lambda: sorted(os.sched_getaffinity(0)))
    moments: dict[str, list[float]] = field(default_factory=dict)
    _deployed: int = 0

    def serve(self, version: int = 1, cpuset: str | None = None) -> None:
        """Deploy the model under load, or give it other CPUs."""
        self.proxy.client.deploy(
            MODEL, self.model, version=version, config=self.config, cpuset=cpuset, wait=True, timeout=120
        )

    def note(self, switch: str, at: float) -> None:
        """Add a moment."""
        self.moments.setdefault(switch, []).append(at)

    def deployment(self) -> None:
        """Deploy the large model, and take it out."""
        self._deployed += 1
        number = self._deployed
        begun = time.time()
        self.note("deploy", begun)
        self.proxy.client.deploy(LARGE, self.large, version=number, config=self.config, wait=True, timeout=300)
        # What is loaded within a look may never be seen loading.
        for switch, states in (("loading", ("loading", "warming", "ready")), ("ready", ("ready",))):
            self.note(switch, self.proxy.first(begun, partial(_is, version=number, states=states)))
        time.sleep(_SETTLE_S)
        begun = time.time()
        self.note("undeploy", begun)
        self.proxy.client.undeploy(LARGE, number)
        self.note("unloaded", self.proxy.first(begun, partial(_is, version=number, states=(None,))))
        time.sleep(_SETTLE_S)

    def _switch(self, name: str, change: Callable[[], object]) -> None:
        begun = time.time()
        change()
        self.note(name, self.proxy.applied(begun))
        time.sleep(_SETTLE_S)

    def split(self, percent: int) -> None:
        """Give a second version traffic."""
        self._switch("traffic", lambda: self.proxy.client.traffic(MODEL, {2: percent}))

    def promote(self) -> None:
        """Give the second version all traffic."""
        self._switch("promote", lambda: self.proxy.client.promote(MODEL, 2))

    def roll_back(self) -> None:
        """Give the first version all traffic again."""
        self._switch("rollback", lambda: self.proxy.client.rollback(MODEL))

    def cpusets(self) -> tuple[str, str]:
        """Answer two ways to give each session a CPU."""
        turned = [*self.cpus[1:], *self.cpus[:1]]
        return ";".join(map(str, self.cpus)), ";".join(map(str, turned))

    def pin(self, way: int) -> None:
        """Let the sessions change their CPUs."""
        self._switch("re-pin", partial(self.serve, cpuset=self.cpusets()[way]))


@dataclass(frozen=True)
class Kind:
    """A kind of changes.

    Attributes
    ----------
    title : str
    prepare : callable
        Before the first cycle and what else is measured beside it.
    cycle : callables
        One after the other, a cycle; it ends as it began.
    states : bool
        Whether each step leads to a state of its own that costs what it costs, such as two versions that share the
        caches: the level without changes is then that of these states, held for equal times as in a cycle.
    reach, step : float [s]
        Of the course around a switch.
    """

    title: str
    prepare: Callable[[Changes], None]
    cycle: Sequence[Callable[[Changes], None]]
    states: bool
    reach: float
    step: float


def _nothing(changes: Changes) -> None:
    pass


KINDS = {
    "deployments": Kind("deploying and undeploying 1 GB", _nothing, (Changes.deployment,), False, 2.0, 0.25),
    "routing": Kind(
        "traffic, promote, roll-back",
        lambda one: one.serve(version=2),
        (lambda one: one.split(30), lambda one: one.split(70), Changes.promote, Changes.roll_back),
        True,
        0.16,
        0.02,
    ),
    "pinning": Kind(
        "re-pinning",
        lambda one: one.serve(cpuset=one.cpusets()[0]),
        (lambda one: one.pin(1), lambda one: one.pin(0)),
        True,
        0.16,
        0.02,
    ),
}
