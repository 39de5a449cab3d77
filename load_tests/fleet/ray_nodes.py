# SPDX-License-Identifier: Apache-2.0
"""`ray`: requests that are lost on a Ray cluster whose nodes die, are added and are taken away under load.

The nodes are processes of this machine with an address each, and have room for one replica. Clients have the addresses
of all nodes, as docs/ray.md says.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from load_tests._programs import ROOT
from load_tests._report import Target
from load_tests.fleet.clients import RoundRobinClients, predict_request
from load_tests.fleet.ray_cluster import RayCluster, ray_cluster
from load_tests.fleet.ray_replicas import ray_options
from load_tests.fleet.setup import FleetProxy, Setup, make_certificates, wait_until
from load_tests.ports import free_port
from load_tests.workloads import ensure_model

__all__ = ["judge", "measure"]

_REPLICAS = 2
_WAIT_S = 300.0


def measure(setup: Setup) -> dict[str, Any]:
    """Do each thing under load, and count lost requests and the seconds until all replicas are ready."""
    model = ensure_model("tiny")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        make_certificates(folder)
        cluster = stack.enter_context(ray_cluster())
        fleet = _Fleet(folder, cluster)
        fleet.start(("--max-message-mb", "64"))
        stack.callback(fleet.stop)
        fleet.proxy.client.deploy("tiny", model, version=1)
        fleet.wait_ready()
        found = {
            "node_killed": fleet.under_load(setup, fleet.kill_node),
            "node_added": fleet.under_load(setup, fleet.add_node),
            "node_drained": fleet.under_load(setup, fleet.drain_node),
            "rolling_upgrade": fleet.under_load(setup, fleet.upgrade),
            "proxy_killed": fleet.under_load(setup, lambda: fleet.kill_proxy(model)),
        }
        fleet.stop()
        fleet.wanted = 0
        fleet.start()
        fleet.wait_for_none()
    return found


def judge(case: dict[str, Any]) -> list[Target]:
    """Return the targets."""
    return [
        Target(f"requests lost on Ray, {name.replace('_', ' ')}", found["lost"], 0, at_least=False)
        for name, found in case.items()
    ]


class _Fleet:
    """A cluster with nodes, and the proxy."""

    proxy: FleetProxy

    def __init__(self, folder: Path, cluster: RayCluster) -> None:
        self._folder, self._cluster = folder, cluster
        self._port = free_port()
        self.wanted = _REPLICAS
        self._nodes: dict[str, Any] = {}
        for _ in range(_REPLICAS):
            self._add()

    def start(self, options: tuple[str, ...] = ()) -> None:
        """Start the proxy."""
        placed = ray_options(self._folder, self._cluster, self._port, self.wanted)
        self.proxy = FleetProxy(self._folder, options=(*placed, *options), engine="ray")
        self.proxy.__enter__()

    def wait_ready(self, old: frozenset[str] = frozenset()) -> None:
        """Wait until all replicas are ready and have the present options, and none of `old` is left."""

        def ready() -> bool:
            found = self.proxy.client.status()["replicas"]
            names = {replica["name"] for replica in found["replicas"]}
            current = [replica for replica in found["replicas"] if replica["current"] and replica["state"] == "ready"]
            return len(current) == len(names) == _REPLICAS and not names & old and found["fault"] is None

        wait_until(ready, _WAIT_S)

    def under_load(self, setup: Setup, work: Callable[[], None]) -> dict[str, Any]:
        """Do something while clients send requests."""
        addresses = [f"{address}:{self._port}" for address in self._cluster.addresses_to_come(3)]
        with RoundRobinClients(
            [f"{node}:{self._port}" for node in self._nodes] + addresses, predict_request(), True
        ) as clients:
            time.sleep(setup.seconds)
            begun = time.monotonic()
            work()
            took = time.monotonic() - begun
            time.sleep(setup.seconds)
        return {"requests": clients.statuses.total(), "lost": clients.lost, "seconds": took, **dict(clients.statuses)}

    def kill_node(self) -> None:
        """Kill a node with all that runs there; its replica waits for room."""
        address = self._node_of("replica-1")
        host = self._pid("replica-1/host-0")
        for pid in (host, _parent(host)):
            os.kill(pid, signal.SIGKILL)
        self._cluster.kill_node(self._nodes.pop(address))
        wait_until(lambda: address not in self._addresses(), _WAIT_S)

    def add_node(self) -> None:
        """Add a node, on which Ray starts the replica that waits."""
        self._add()
        self.wait_ready()

    def drain_node(self) -> None:
        """Let Ray take a node away while there is another one."""
        self._add()
        address = self._node_of("replica-0")
        status = self.proxy.client.status()["replicas"]
        node = next(node["id"] for node in status["nodes"] if node["address"] == address)
        drain = [sys.executable, "-m", "ray.scripts.scripts", "drain-node", "--address", self._cluster.address]
        drain += ["--node-id", node, "--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot"]
        subprocess.run([*drain, "--deadline-remaining-seconds", "600"], check=True, capture_output=True, cwd=ROOT)
        self.wait_ready(frozenset({"replica-0"}))
        wait_until(lambda: address not in self._addresses(), _WAIT_S)
        self._cluster.kill_node(self._nodes.pop(address))

    def upgrade(self) -> None:
        """Start the proxy with other options of hosts, so that all replicas are replaced, with a node to spare."""
        self._add()
        self.stop()
        self.start(("--max-message-mb", "65"))
        self.wait_ready()

    def kill_proxy(self, model: Path) -> None:
        """Kill the proxy, start it again, and deploy to the replicas that it finds."""
        before = {name: self._pid(f"{name}/host-0") for name in self._names()}
        self.proxy.kill()
        time.sleep(2.0)
        self.start(("--max-message-mb", "65"))
        self.wait_ready()
        self.proxy.client.deploy("tiny", model, version=2, wait=True, timeout=120)
        if before != {name: self._pid(f"{name}/host-0") for name in self._names()}:
            raise AssertionError("hosts were started again, expected them to go on without the proxy")

    def stop(self) -> None:
        """End the proxy; replicas go on."""
        self.proxy.__exit__(None, None, None)

    def wait_for_none(self) -> None:
        """Wait until there are no replicas."""
        wait_until(lambda: not self._names(), _WAIT_S)

    def _add(self) -> None:
        address, node = self._cluster.add_node(cpus=1)
        self._nodes[address] = node

    def _names(self) -> list[str]:
        return [replica["name"] for replica in self.proxy.client.status()["replicas"]["replicas"]]

    def _node_of(self, name: str) -> str:
        found = self.proxy.client.status()["replicas"]["replicas"]
        return next(str(replica["node"]) for replica in found if replica["name"] == name)

    def _addresses(self) -> set[str]:
        """Return the nodes that Ray has and does not take away."""
        nodes = self.proxy.client.status()["replicas"]["nodes"]
        return {node["address"] for node in nodes if not node["draining"]}

    def _pid(self, host: str) -> int:
        """Return the process of a host, once its agent has reported it."""

        def reported() -> int:
            hosts = self.proxy.client.status()["hosts"]
            return next((int(found["pid"]) for found in hosts if found["name"] == host), 0)

        return int(wait_until(reported, _WAIT_S))


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
