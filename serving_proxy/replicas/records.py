# SPDX-License-Identifier: Apache-2.0
"""What the proxy knows of nodes and of the replicas on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

PREFIX = "replica-"
RAY_MISSING = "--engine ray: Ray is not installed, expected `pip install '.[ray]'` in a checkout"


@dataclass(frozen=True)
class NodeSeen:
    """A node of the cluster.

    Attributes
    ----------
    id, address : str
    cpus : float
        Number of CPUs that the engine gives out there.
    drains : bool
        The engine takes the node away.
    left_s : float [s] or None
        Time until it does; None: without a deadline, or it does not.
    """

    id: str
    address: str
    cpus: float
    drains: bool = False
    left_s: float | None = None


@dataclass(frozen=True)
class ReplicaSeen:
    """A replica: an actor with an agent and a host.

    Attributes
    ----------
    name : str
    answers : bool
        It has answered lately; otherwise it waits for a node, is being started again, or hangs.
    silent_s : float [s]
        How long it has not answered.
    node, address, pid : str, str, int
        Where it runs.
    spec : str
        The specification that it was started with.
    servers : tuple of str
        The proxies that it follows.
    state : str
        State of its host: `starting`, `loading`, `warming`, `ready`, `draining`, `stopped` or `failed`.
    ready_s : float [s]
        How long it has been ready.
    drains, drained : bool
        It is to end; its host has ended.
    cores : str
        CPUs of its host, such as `0-1`; "": all.
    restarts : int
        How often its host was started again.
    cpu_s : float [s]
        CPU time of its hosts; it begins at 0 if the actor is started again.
    note : str
        What is wrong.
    """

    name: str
    answers: bool = False
    silent_s: float = 0.0
    node: str = ""
    address: str = ""
    pid: int = 0
    spec: str = ""
    servers: tuple[str, ...] = ()
    state: str = "starting"
    ready_s: float = 0.0
    drains: bool = False
    drained: bool = False
    cores: str = ""
    restarts: int = 0
    cpu_s: float = 0.0
    note: str = ""

    @property
    def is_ready(self) -> bool:
        """Return whether its host serves."""
        return self.answers and self.state == "ready" and not self.drains

    @property
    def number(self) -> int:
        """Return the number in its name."""
        return int(self.name.removeprefix(PREFIX))


@dataclass(frozen=True)
class ClusterSeen:
    """The cluster as it was seen last.

    Attributes
    ----------
    nodes : tuple of NodeSeen
        Those that are alive.
    replicas : tuple of ReplicaSeen
    faults : mapping of str to str
        Replica: why its actor has died for good.
    here : str
        Address of this machine in the cluster.
    """

    nodes: tuple[NodeSeen, ...]
    replicas: tuple[ReplicaSeen, ...]
    faults: Mapping[str, str]
    here: str = ""


def is_replica(name: str) -> bool:
    """Return whether an actor has the name of a replica; other programs may use the namespace too."""
    number = name.removeprefix(PREFIX)
    return name.startswith(PREFIX) and number.isdecimal() and str(int(number)) == number


def read_cluster(found: Mapping[str, Any]) -> ClusterSeen:
    """Return the cluster that the driver has told of."""
    # Actors outlive the proxy, so one of another release may tell more than this one knows.
    known = {one.name for one in fields(ReplicaSeen)}
    replicas = []
    for replica in filter(lambda one: is_replica(one["name"]), found["replicas"]):
        values: dict[str, Any] = {key: value for key, value in replica.items() if key in known}
        replicas.append(ReplicaSeen(**{**values, "servers": tuple(values.get("servers", ()))}))
    return ClusterSeen(
        tuple(NodeSeen(**node) for node in found["nodes"]),
        tuple(sorted(replicas, key=lambda replica: replica.number)),
        dict(found["faults"]),
        str(found.get("here", "")),
    )
