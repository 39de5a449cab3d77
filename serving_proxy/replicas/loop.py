# SPDX-License-Identifier: Apache-2.0
"""Keep the wanted number of replicas running, while this proxy leads."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from serving_proxy.access.tokens import is_loopback
from serving_proxy.errors import InvalidError, ProxyError
from serving_proxy.replicas.decide import Action, decide
from serving_proxy.replicas.driver import Driver
from serving_proxy.replicas.records import ClusterSeen, read_cluster
from serving_proxy.replicas.views import ReplicasView, replicas_view

log = logging.getLogger("serving_proxy.replicas")

_PERIOD_S = 1.0
_FIRST_RETRY_S, _LONGEST_RETRY_S = 2.0, 60.0
# Replicas that have not answered after so many looks, or so many looks that failed, are not waited for.
_MOST_LOOKS = 5


class Scale(Protocol):
    """Says how many replicas are wanted."""

    def wanted(self, cpu_s: Mapping[str, float]) -> tuple[int, str]:
        """Return the number, and the reason.

        Parameters
        ----------
        cpu_s : mapping of replica to float [s]
            CPU time of its hosts until now.
        """


@dataclass(frozen=True)
class ReplicaOptions:
    """How replicas are started.

    Attributes
    ----------
    spec : mapping
        What a replica is; those with another one are replaced.
    access : mapping
        How it reaches the proxy; those with another one are told. Contains the token, so it has no place in a view.
    drain_s : float [s]
        How long a host may take to finish its requests.
    limits : (int, int)
        Least and largest number of replicas; equal if the operator has given the number.
    """

    spec: Mapping[str, Any]
    access: Mapping[str, Any] = field(repr=False)
    drain_s: float
    limits: tuple[int, int]

    @property
    def identity(self) -> str:
        """Return what specifications are compared by."""
        return hashlib.sha256(json.dumps(self.spec, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def started_with(self) -> dict[str, Any]:
        """Return the specification that an actor gets."""
        return {**self.spec, "identity": self.identity}


class Replicas:
    """The replicas of a proxy.

    Parameters
    ----------
    driver : Driver
    options : ReplicaOptions
    scale : Scale
    leads : callable
        Whether this proxy may change anything.
    note : callable
        Records an event: kind, message.
    forget : callable
        Called with the name of a replica that was removed.
    told : callable
        Called once the replicas have been told of this proxy, or cannot be.
    """

    def __init__(
        self,
        driver: Driver,
        options: ReplicaOptions,
        scale: Scale,
        leads: Callable[[], bool],
        note: Callable[[str, str], None],
        forget: Callable[[str], None],
        told: Callable[[], None],
    ) -> None:
        self._driver, self._options, self._scale = driver, options, scale
        self._note, self._leads, self._forget, self._told = note, leads, forget, told
        self._looks = self._failed_looks = 0
        self._cluster: ClusterSeen | None = None
        self._fault: str | None = None
        self._wanted = scale.wanted({})
        self._asked: int | None = None
        self._noted: dict[str, str] = {}
        self._nodes: dict[str, bool] = {}
        self._warned = False
        # Replica: when it may be started again, and after how long the next time.
        self._retries: dict[str, tuple[float, float]] = {}

    def view(self) -> ReplicasView:
        """Return the view."""
        connecting = f"{self._driver.place}: connecting" if self._cluster is None else None
        return replicas_view(*self._wanted, self._fault or connecting, self._options.identity, self._cluster)

    async def run(self) -> None:
        """Keep the replicas until the task is cancelled; they go on then.

        Raises
        ------
        InvalidError
            Ray is not installed.
        """
        try:
            while True:
                try:
                    await self.step()
                    self._note_fault(None)
                    self._failed_looks = 0
                except InvalidError:
                    raise
                except ProxyError as error:
                    self._note_fault(str(error))
                    # The first connection to a slow cluster may fail before any replica can be told.
                    self._failed_looks += 1
                    if self._failed_looks >= _MOST_LOOKS:
                        self._told()
                await asyncio.sleep(_PERIOD_S)
        finally:
            # The event loop may be about to end.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(self._driver.close())

    async def step(self) -> None:
        """Look at the cluster once, and do what follows."""
        cluster = read_cluster(await self._driver.call("look"))
        self._cluster = cluster
        self._wanted = self._scale.wanted({found.name: found.cpu_s for found in cluster.replicas if found.answers})
        self._note_changes(cluster)
        if not self._leads():
            return
        await self._tell(cluster)
        count = self._wanted[0]
        if count != self._asked:
            await self._driver.call("request", count=count, cores=self._options.spec["cores"])
            self._asked = count
        for action in decide(count, self._options.identity, cluster, self._options.drain_s):
            await self._do(action, cluster)

    async def _tell(self, cluster: ClusterSeen) -> None:
        """Tell the replicas which proxy they are to follow."""
        servers = tuple(self._options.access["servers"])
        for replica in cluster.replicas:
            if replica.answers and replica.servers != servers:
                await self._driver.call("follow", name=replica.name, access=self._options.access)
        self._looks += 1
        if self._looks >= _MOST_LOOKS or all(replica.answers for replica in cluster.replicas):
            self._told()

    async def _do(self, action: Action, cluster: ClusterSeen) -> None:
        name = action.name
        if action.kind == "create":
            if not self._may_start(name, cluster.faults.get(name)):
                return
            await self._driver.call("create", name=name, spec=self._options.started_with, access=self._options.access)
            self._note("replica", f"{name}: started")
            return
        await self._driver.call(action.kind, name=name)
        if action.kind == "remove":
            self._retries.pop(name, None)
            self._forget(name)
        done = {"drain": "drains", "remove": "removed", "restart": "started again"}[action.kind]
        self._note("replica", f"{name}: {done}, {action.reason}")

    def _may_start(self, name: str, fault: str | None) -> bool:
        """Return whether a replica may be started now: one whose actor has failed waits longer each time."""
        now = time.monotonic()
        at, delay = self._retries.get(name, (0.0, _FIRST_RETRY_S))
        if fault is not None and at == 0.0:
            self._retries[name] = now + delay, min(2 * delay, _LONGEST_RETRY_S)
            self._note("replica", f"{name}: {fault}; started again in {delay:g} s")
            return False
        if now < at:
            return False
        if fault is not None:
            self._retries[name] = 0.0, delay
        return True

    def _note_changes(self, cluster: ClusterSeen) -> None:
        """Record nodes that come and go, and what is wrong with replicas."""
        nodes = {node.address: node.drains for node in cluster.nodes}
        for address in nodes.keys() - self._nodes.keys():
            self._note("node", f"{address}: there")
        for address in self._nodes.keys() - nodes.keys():
            self._note("node", f"{address}: gone")
        for address, drains in nodes.items():
            if drains and not self._nodes.get(address, False):
                self._note("node", f"{address}: Ray takes it away, its replicas are replaced")
        self._nodes = nodes
        for server in self._options.access["servers"]:
            far = sorted(address for address in nodes if not is_loopback(address) and address != cluster.here)
            if far and is_loopback(urlsplit(server).hostname or "") and not self._warned:
                self._warned = True
                self._note("replica", f"nodes {', '.join(far[:3])} cannot reach {server}, expected --admin-address")
        notes = {replica.name: replica.note for replica in cluster.replicas if replica.note}
        for name, note in notes.items():
            if self._noted.get(name) != note:
                self._note("replica", f"{name}: {note}")
        self._noted = notes

    def _note_fault(self, fault: str | None) -> None:
        if fault != self._fault:
            self._note("engine", f"{fault}; replicas keep serving" if fault else "Ray answers again")
        self._fault = fault
