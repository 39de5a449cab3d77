# SPDX-License-Identifier: Apache-2.0
"""Clusters of Ray on this machine: each node has a loopback address of its own, and CPUs that are only counts."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from load_tests._programs import ROOT
from load_tests.fleet.network import Network

__all__ = ["RayCluster", "ray_cluster"]

# 127.0.0.1 would be replaced by an address that other machines can reach.
_FIRST = 2
_STORE_BYTES = 80 * 1024 * 1024


class RayCluster:
    """A cluster with a head node, and further nodes.

    Parameters
    ----------
    cpus : int
        CPUs of the head node.
    address : str, optional
        Address of the head node, if nodes of other networks are to reach it.
    """

    def __init__(self, cpus: int, address: str | None = None) -> None:
        from ray.cluster_utils import Cluster

        self._last = _FIRST - 1
        arguments = self._arguments(cpus)
        if address is not None:
            arguments["node_ip_address"] = address
        arguments["include_dashboard"] = False
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=arguments)

    @property
    def address(self) -> str:
        """Return the address of the head node."""
        return str(self._cluster.address)

    def add_node(self, cpus: int, folder: Path | None = None) -> tuple[str, Any]:
        """Start a node, wait until the cluster has it, and return its address and the node.

        With a folder, this is where it has temporary files, such as those of replicas without `--replica-folder`. Then
        it has no files in common with other nodes, like another machine.
        """
        arguments = self._arguments(cpus)
        with _environment({} if folder is None else _temporary(folder)):
            return arguments["node_ip_address"], self._cluster.add_node(**arguments)

    def addresses_to_come(self, count: int) -> list[str]:
        """Return the addresses that the next nodes will have."""
        return [f"127.0.0.{self._last + number + 1}" for number in range(count)]

    def raylet(self, node: Any) -> subprocess.Popen[bytes]:
        """Return the process of a node that has started all others there."""
        found: subprocess.Popen[bytes] = node.all_processes["raylet"][0].process
        return found

    def kill_node(self, node: Any) -> None:
        """Kill the processes of a node, as if its machine had failed."""
        self._cluster.remove_node(node, allow_graceful=False)

    def join_from(self, network: Network, cpus: int, folder: Path) -> None:
        """Start a node in another network, and wait until the cluster has it; it ends with `network.kill`.

        Its temporary files are in the folder.
        """
        start = [*network.enter, sys.executable, "-m", "ray.scripts.scripts", "start", "--address", self.address]
        start += ["--node-ip-address", network.inside, "--num-cpus", str(cpus)]
        start += ["--object-store-memory", str(_STORE_BYTES), "--disable-usage-stats"]
        subprocess.run(start, check=True, capture_output=True, cwd=ROOT, env={**os.environ, **_temporary(folder)})

    def shutdown(self) -> None:
        """End all nodes."""
        self._cluster.shutdown()

    def _arguments(self, cpus: int) -> dict[str, Any]:
        self._last += 1
        address = f"127.0.0.{self._last}"
        return {"num_cpus": cpus, "object_store_memory": _STORE_BYTES, "node_ip_address": address}


@contextlib.contextmanager
def ray_cluster(cpus: int = 0, address: str | None = None) -> Iterator[RayCluster]:
    """Run a cluster whose actors import the packages of this checkout; the parameters are those of RayCluster."""
    # In the usual folder it would replace the address of a cluster that a user runs. Sockets need a short path.
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    (folder / "ray").mkdir()
    set_here = {
        "RAY_TMPDIR": str(folder),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "RAY_USAGE_STATS_ENABLED": "0",
        # By default actors, and what they start, have a low priority.
        "RAY_worker_niceness": "0",
        # No processes for tasks, of which there are none.
        "RAY_prestart_worker_first_driver": "0",
        # Dead nodes are noticed after 3 s instead of 15 s.
        "RAY_health_check_period_ms": "1000",
        "RAY_health_check_timeout_ms": "1000",
        "RAY_health_check_failure_threshold": "3",
    }
    with _environment(set_here):
        cluster = None
        try:
            cluster = RayCluster(cpus, address)
            yield cluster
        finally:
            if cluster is not None:
                cluster.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables while the block runs."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _temporary(folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    return {"TMPDIR": str(folder)}
