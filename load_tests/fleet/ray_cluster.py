# SPDX-License-Identifier: Apache-2.0
"""Clusters of Ray on this machine: each node has a loopback address of its own, and CPUs that are only counts."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from load_tests._programs import ROOT

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
    """

    def __init__(self, cpus: int) -> None:
        from ray.cluster_utils import Cluster

        self._last = _FIRST - 1
        arguments = self._arguments(cpus)
        arguments["include_dashboard"] = False
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=arguments)

    @property
    def address(self) -> str:
        """Return the address of the head node."""
        return str(self._cluster.address)

    def add_node(self, cpus: int) -> tuple[str, Any]:
        """Start a node, wait until the cluster has it, and return its address and the node."""
        arguments = self._arguments(cpus)
        return arguments["node_ip_address"], self._cluster.add_node(**arguments)

    def addresses_to_come(self, count: int) -> list[str]:
        """Return the addresses that the next nodes will have."""
        return [f"127.0.0.{self._last + number + 1}" for number in range(count)]

    def kill_node(self, node: Any) -> None:
        """Kill the processes of a node, as if its machine had failed."""
        self._cluster.remove_node(node, allow_graceful=False)

    def shutdown(self) -> None:
        """End all nodes."""
        self._cluster.shutdown()

    def _arguments(self, cpus: int) -> dict[str, Any]:
        self._last += 1
        address = f"127.0.0.{self._last}"
        return {"num_cpus": cpus, "object_store_memory": _STORE_BYTES, "node_ip_address": address}


@contextlib.contextmanager
def ray_cluster(cpus: int = 0) -> Iterator[RayCluster]:
    """Run a cluster whose actors import the packages of this checkout, with so many CPUs of its head node."""
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
    before = {name: os.environ.get(name) for name in set_here}
    os.environ |= set_here
    cluster = None
    try:
        cluster = RayCluster(cpus)
        yield cluster
    finally:
        if cluster is not None:
            cluster.shutdown()
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        shutil.rmtree(folder, ignore_errors=True)
