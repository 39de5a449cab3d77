# SPDX-License-Identifier: Apache-2.0
"""Define the context and the results of a fault test."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from load_tests.faults.clients import MODEL, VERSIONS, Clients, Responses
from load_tests.faults.service import Service
from serving_proxy import Client
from serving_proxy.errors import ProxyError

__all__ = ["RECOVERY_S", "Case", "Found", "Stage", "another"]

#: Longest allowed time without a response after a fault.
RECOVERY_S = 10.0
_CLIENTS = 2
#: How long all checks must pass at the end of a case.
_QUIET_S = 1.0


@dataclass
class Found:
    """Contain the results of a case.

    Attributes
    ----------
    faults : int
        Number of injected faults.
    recovery_s : float [s]
        The longest time after a fault in which no client received a right response.
    problems : list of str
        Failed checks, a sentence each.
    figures : dict
        Other measurements.
    """

    faults: int = 0
    recovery_s: float = 0.0
    problems: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    responses: Responses = field(default_factory=Responses)

    @property
    def ok(self) -> bool:
        """Return whether all checks passed."""
        return not self.problems


@dataclass
class Case:
    """Provide what a case may use.

    Attributes
    ----------
    kind : str
        Kind of host: `python` or `go`.
    models : Path
        Folder that `models.py` has written.
    folder : Path
        An empty folder for this case.
    draw : Random
    kills : int
        Number of kills, for the case that kills.
    """

    kind: str
    models: Path
    folder: Path
    draw: Random
    kills: int
    seed: int
    found: Found = field(default_factory=Found)

    def expect(self, holds: bool, problem: str) -> None:
        """Record a problem unless a condition holds."""
        if not holds:
            self.found.problems.append(problem)

    @contextlib.contextmanager
    def stage(self, disk_bytes: int | None = None, options: Sequence[str] = ()) -> Iterator[Stage]:
        """Start a proxy and its host, deploy the first version, and let clients send requests until the end.

        At the end, all responses must have been right and the last ones must have arrived.
        """
        with Service(self.kind, self.folder, disk_bytes, options) as service, service.client() as client:
            client.deploy(MODEL, self.models / "1", version=1, wait=True, timeout=60)
            with Clients(service.rest, _CLIENTS, self.seed) as clients:
                stage = Stage(self, service, client, clients)
                self.expect(clients.wait_answered(RECOVERY_S, time.monotonic()), "no answer before the first fault")
                yield stage
                end = time.monotonic() + _QUIET_S
                time.sleep(_QUIET_S)
                self.expect(clients.wait_answered(RECOVERY_S, end), "no answer at the end")
            self.found.responses = clients.responses
            wrong = clients.responses.wrong
            self.expect(not wrong, f"{len(wrong)} wrong answers, the first: {wrong[:1]}")
            worst = self.found.recovery_s
            self.expect(worst <= RECOVERY_S, f"no answer for {worst:.1f} s, expected at most {RECOVERY_S:g} s")


@dataclass
class Stage:
    """Provide a proxy with its host and clients that send requests."""

    case: Case
    service: Service
    client: Client
    clients: Clients

    @contextlib.contextmanager
    def fault(self, lasts: Callable[[], float] = lambda: 0.0) -> Iterator[None]:
        """Inject a fault in this block, which returns when the system should have recovered; record the outage.

        Parameters
        ----------
        lasts : callable
            Called at the end: how long [s] the fault itself prevented all responses, which is not recovery time.
        """
        begin = time.monotonic()
        yield
        self.clients.wait_answered(3 * RECOVERY_S, time.monotonic())
        gap = self.clients.responses.longest_gap(begin, time.monotonic()) - lasts()
        self.case.found.faults += 1
        self.case.found.recovery_s = max(self.case.found.recovery_s, gap)

    def works(self, version: int) -> None:
        """Deploy and promote a version: the verbs must work as before."""
        try:
            self.client.deploy(MODEL, self.case.models / str(version), version=version, wait=True, timeout=60)
            self.client.promote(MODEL, version)
        except ProxyError as error:
            self.case.found.problems.append(f"deploy and promote of version {version}: {error}")
            return
        until = time.monotonic() + 30
        while time.monotonic() < until:
            if self.client.versions(MODEL)["baseline"] == version:
                return
            time.sleep(0.1)
        self.case.found.problems.append(f"version {version} did not become the baseline within 30 s")

    def wait_state(self, version: int, states: Sequence[str], seconds: float) -> dict[str, Any]:
        """Wait until the host reports one of these states for a version; record a problem if it does not."""
        until = time.monotonic() + seconds
        seen: dict[str, Any] = {}
        while time.monotonic() < until:
            seen = self.service.versions(MODEL).get(version, {})
            if seen.get("state") in states:
                return seen
            time.sleep(0.1)
        shown = f"{seen.get('state', 'absent')} ({seen.get('error')})"
        self.case.found.problems.append(
            f"version {version}: {shown} after {seconds:g} s, expected {' or '.join(states)}"
        )
        return seen


def another(draw: Random, than: int) -> int:
    """Draw a good version other than the given one."""
    return draw.choice([number for number in VERSIONS if number != than])
