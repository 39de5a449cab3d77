# SPDX-License-Identifier: Apache-2.0
"""The API's view of nodes and replicas."""

from __future__ import annotations

from serving_proxy.records.view import View
from serving_proxy.replicas.records import ClusterSeen, ReplicaSeen


class ReplicaView(View):
    """A replica; `state` is that of its host, `waiting` while it has no node or does not answer, or `unknown`."""

    name: str
    state: str
    node: str
    cores: str
    restarts: int
    current: bool
    note: str


class NodeView(View):
    """A node of the cluster."""

    id: str
    address: str
    cpus: float
    draining: bool


class ReplicasView(View):
    """The replicas that an engine places; `fault`: why the engine cannot be asked at the moment."""

    wanted: int
    ready: int
    reason: str
    fault: str | None
    nodes: list[NodeView]
    replicas: list[ReplicaView]


def replicas_view(wanted: int, reason: str, fault: str | None, spec: str, cluster: ClusterSeen | None) -> ReplicasView:
    """Return the view.

    Parameters
    ----------
    wanted : int
        Number of replicas.
    reason : str
        Why so many.
    fault : str or None
    spec : str
        The specification that they are to have.
    cluster : ClusterSeen or None
        None: it has not been seen yet.
    """
    nodes, replicas = ((), ()) if cluster is None else (cluster.nodes, cluster.replicas)
    return ReplicasView(
        wanted=wanted,
        ready=sum(found.is_ready for found in replicas) if fault is None else 0,
        reason=reason,
        fault=fault,
        nodes=[NodeView(id=node.id, address=node.address, cpus=node.cpus, draining=node.drains) for node in nodes],
        replicas=[
            ReplicaView(
                name=found.name,
                state=_state(found) if fault is None else "unknown",
                node=found.address,
                cores=found.cores,
                restarts=found.restarts,
                current=found.spec == spec,
                note=found.note,
            )
            for found in replicas
        ],
    )


def _state(found: ReplicaSeen) -> str:
    return "waiting" if not found.answers else "draining" if found.drains else found.state
