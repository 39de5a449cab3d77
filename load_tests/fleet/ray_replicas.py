# SPDX-License-Identifier: Apache-2.0
"""Options of proxies on Ray, and questions to such a proxy about its replicas."""

from __future__ import annotations

from pathlib import Path

from load_tests.fleet.ray_cluster import RayCluster
from load_tests.fleet.setup import FleetProxy, wait_until

__all__ = ["host_pids", "ray_options", "wait_for_replicas"]

_WAIT_S = 300.0


def ray_options(folder: Path, cluster: RayCluster, port: int, replicas: int, of_nodes: bool = False) -> tuple[str, ...]:
    """Return the options of a proxy with replicas, whose Go hosts listen for gRPC at a port of their nodes.

    With `of_nodes`, each node has a folder for temporary files of its own, in which its replicas are.
    """
    place = ("--ray-address", cluster.address, "--replicas", str(replicas))
    files = () if of_nodes else ("--replica-folder", str(folder / "nodes"))
    ports = ("--grpc-port", str(port), "--rest-port", "0", "--host", "go", "--drain-timeout", "10")
    return (*place, *files, "--agent-ca-file", str(folder / "ca.crt"), *ports)


def wait_for_replicas(proxy: FleetProxy, count: int) -> dict[str, str]:
    """Wait until so many replicas are ready and there are no others, and return their nodes."""

    def ready() -> dict[str, str]:
        found = proxy.client.status()["replicas"]
        nodes = {one["name"]: str(one["node"]) for one in found["replicas"] if one["state"] == "ready"}
        return nodes if len(nodes) == len(found["replicas"]) == count and found["fault"] is None else {}

    found: dict[str, str] = wait_until(ready, _WAIT_S)
    return found


def host_pids(proxy: FleetProxy, count: int) -> dict[str, int]:
    """Wait until so many hosts are reported as alive, and return their processes."""

    def reported() -> dict[str, int]:
        found = {host["name"]: int(host["pid"]) for host in proxy.client.status()["hosts"] if host["alive"]}
        return found if len(found) == count else {}

    found: dict[str, int] = wait_until(reported, _WAIT_S)
    return found
