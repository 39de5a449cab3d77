# SPDX-License-Identifier: Apache-2.0
"""`ray_silent`: requests that are lost when packets from and to a node of Ray are dropped under load.

The node has a network of its own (a namespace, which needs root), and another node has room for its replica. Ray's
health checks are those of `ray_cluster`, which notice after five seconds that a node is silent.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from load_tests._report import Target
from load_tests.fleet.clients import RoundRobinClients, predict_request
from load_tests.fleet.network import Network
from load_tests.fleet.ray_cluster import RayCluster, ray_cluster
from load_tests.fleet.ray_replicas import host_pids, ray_options, wait_for_replicas
from load_tests.fleet.setup import FleetProxy, Setup, make_certificates, wait_until
from load_tests.ports import free_port
from load_tests.workloads import ensure_model

__all__ = ["judge", "measure"]

_LIMIT_S = 10.0
_WAIT_S = 300.0


def measure(setup: Setup) -> dict[str, Any]:
    """Let a node fall silent under load, and speak again once its replica has been replaced."""
    if not Network.is_possible():
        return {"skipped": "network namespaces need root and `ip`"}
    model = ensure_model("tiny")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, network = Path(name), stack.enter_context(Network())
        make_certificates(folder, network.outside)
        cluster = stack.enter_context(ray_cluster(address=network.outside))
        stack.callback(network.kill)
        there, _ = cluster.add_node(cpus=1, folder=folder / "there")
        cluster.join_from(network, cpus=1, folder=folder / "silent")
        port = free_port()
        options = (*ray_options(folder, cluster, port, replicas=2, of_nodes=True), "--admin-address", network.outside)
        proxy = stack.enter_context(FleetProxy(folder, options=options, engine="ray"))
        proxy.client.deploy("tiny", model)
        wait_for_replicas(proxy, 2)
        nodes = [there, network.inside, *cluster.addresses_to_come(1)]
        with RoundRobinClients([f"{node}:{port}" for node in nodes], predict_request(), retries=True) as clients:
            found = _fall_silent(setup, proxy, cluster, network, folder / "spare")
        lost = {"requests": clients.statuses.total(), "lost": clients.lost, **dict(clients.statuses)}
    return {**lost, "slowest_s": clients.slowest_s, **found}


def judge(case: dict[str, Any]) -> list[Target]:
    """Return the targets."""
    if "skipped" in case:
        return []
    return [
        Target("requests lost when a node of Ray falls silent, with retries", case["lost"], 0, at_least=False),
        Target("slowest request when a node of Ray falls silent [s]", case["slowest_s"], _LIMIT_S, at_least=False),
        Target("endpoints without the silent node [s]", case["endpoints_s"], _LIMIT_S, at_least=False),
    ]


def _fall_silent(
    setup: Setup, proxy: FleetProxy, cluster: RayCluster, network: Network, folder: Path
) -> dict[str, float]:
    """Return the seconds until clients are told, Ray has given the node up, and its replica is ready elsewhere."""

    def listed() -> set[str]:
        found = proxy.client.endpoints("tiny")["endpoints"]
        return {str(endpoint["addresses"].get("grpc", "")).partition(":")[0] for endpoint in found}

    def in_ray() -> set[str]:
        return {str(node["address"]) for node in proxy.client.status()["replicas"]["nodes"]}

    wait_until(lambda: network.inside in listed(), _WAIT_S)
    host = set(host_pids(proxy, 2).values()) & set(network.pids())
    spare, _ = cluster.add_node(cpus=1, folder=folder)
    time.sleep(setup.seconds)
    network.fall_silent()
    begun = time.monotonic()
    seconds = {}
    for name, reached in (
        ("endpoints_s", lambda: network.inside not in listed()),
        ("given_up_s", lambda: network.inside not in in_ray()),
        ("replaced_s", lambda: spare in listed()),
    ):
        wait_until(reached, _WAIT_S)
        seconds[name] = time.monotonic() - begun
    time.sleep(setup.seconds)
    network.speak_again()
    # Ray ends the actors of a node that it has given up, and hosts end with them.
    wait_until(lambda: not host & set(network.pids()), _WAIT_S)
    wait_for_replicas(proxy, 2)
    time.sleep(setup.seconds)
    return seconds
