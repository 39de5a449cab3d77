# SPDX-License-Identifier: Apache-2.0
"""Make the changes under load with the proxy's client: the steps of each kind of cycle, and their times of effect."""

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
    """Make changes and record when they took effect.

    Attributes
    ----------
    moments : dict
        By the name of a switch, the Unix times at which the host applied it.
    """

    proxy: Proxy
    model: Path
    large: Path
    config: dict[str, Any]
    cpus: list[int] = field(default_factory=lambda: sorted(os.sched_getaffinity(0)))
    moments: dict[str, list[float]] = field(default_factory=dict)
    _deployed: int = 0

    def serve(self, version: int = 1, cpuset: str | None = None) -> None:
        """Deploy the model under load, or change its CPUs."""
        self.proxy.client.deploy(
            MODEL, self.model, version=version, config=self.config, cpuset=cpuset, wait=True, timeout=120
        )

    def note(self, switch: str, at: float) -> None:
        """Add a moment."""
        self.moments.setdefault(switch, []).append(at)

    def deployment(self) -> None:
        """Deploy the large model, and remove it."""
        self._deployed += 1
        number = self._deployed
        begun = time.time()
        self.note("deploy", begun)
        self.proxy.client.deploy(LARGE, self.large, version=number, config=self.config, wait=True, timeout=300)
        # A load that takes less than one poll may never be seen.
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
        self.note(name, self.proxy.wait_until_applied(begun))
        time.sleep(_SETTLE_S)

    def split(self, percent: int) -> None:
        """Send a part of the traffic to a second version."""
        self._switch("traffic", lambda: self.proxy.client.traffic(MODEL, {2: percent}))

    def promote(self) -> None:
        """Send all traffic to the second version."""
        self._switch("promote", lambda: self.proxy.client.promote(MODEL, 2))

    def roll_back(self) -> None:
        """Send all traffic to the first version again."""
        self._switch("rollback", lambda: self.proxy.client.rollback(MODEL))

    def cpusets(self) -> tuple[str, str]:
        """Return two ways to give each session a CPU."""
        turned = [*self.cpus[1:], *self.cpus[:1]]
        return ";".join(map(str, self.cpus)), ";".join(map(str, turned))

    def pin(self, way: int) -> None:
        """Move the sessions to other CPUs."""
        self._switch("re-pin", partial(self.serve, cpuset=self.cpusets()[way]))


@dataclass(frozen=True)
class Kind:
    """Describe a kind of changes.

    Attributes
    ----------
    title : str
    prepare : callable
        Called before the first cycle and before other measurements.
    cycle : callables
        Steps of a cycle, in order; it ends in the initial state.
    states : bool
        Whether each step leads to a state with its own cost, such as two versions that share the caches. The level
        without changes is then that of these states, held for the same times as in a cycle.
    reach, step : float [s]
        Range and step of the latencies around a switch.
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
        lambda changes: changes.serve(version=2),
        (lambda changes: changes.split(30), lambda changes: changes.split(70), Changes.promote, Changes.roll_back),
        True,
        0.16,
        0.02,
    ),
    "pinning": Kind(
        "re-pinning",
        lambda changes: changes.serve(cpuset=changes.cpusets()[0]),
        (lambda changes: changes.pin(1), lambda changes: changes.pin(0)),
        True,
        0.16,
        0.02,
    ),
}
