# SPDX-License-Identifier: Apache-2.0
"""Run proxies whose hosts are actors of a Ray cluster on this machine, and look at its processes."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

from helpers.proxies.proxy_runs import Proxy, ProxyProcess, ProxyThread, wait_for
from helpers.system.programs import skip_or_fail
from load_tests.fleet.ray_cluster import RayCluster

# Ray takes a while to start processes on a machine that is busy.
START_S = 300.0


def need_ray() -> None:
    """Skip the test if Ray is not installed; in CI, let it fail."""
    if importlib.util.find_spec("ray") is None:
        skip_or_fail("ray: not installed, so the actors are not tested")


def ray_options(cluster: RayCluster, folder: Path, *options: str) -> list[str]:
    """Return the options of a proxy whose replicas have the name of the folder as their namespace."""
    place = ["--engine", "ray", "--ray-address", cluster.address, "--ray-namespace", folder.name]
    return [*place, *options]


class _WithReplicas(Proxy):
    def replicas(self) -> dict[str, dict[str, Any]]:
        """Return the replicas by name."""
        found = self.client().status()["replicas"]
        return {replica["name"]: replica for replica in found["replicas"]}

    def wait_ready(self, *names: str) -> dict[str, dict[str, Any]]:
        """Wait until these replicas are ready, and there are no others."""

        def ready() -> Any:
            found = self.replicas()
            return found if [*found] == [*names] and all(one["state"] == "ready" for one in found.values()) else None

        found: dict[str, dict[str, Any]] = wait_for(ready, START_S, f"replicas {names}")
        return found

    def host_pid(self, replica: str) -> int:
        """Return the process of a replica's host; 0 if none is alive or known."""
        hosts = self.client().status()["hosts"]
        return next((int(host["pid"]) for host in hosts if host["name"] == f"{replica}/host-0" and host["alive"]), 0)

    def processes(self, *names: str) -> dict[str, tuple[int, int]]:
        """Wait until the hosts of replicas are known, and return the processes of their actors and of them."""

        def known() -> Any:
            hosts = {name: self.host_pid(name) for name in names}
            return {name: (parent(host), host) for name, host in hosts.items()} if all(hosts.values()) else None

        found: dict[str, tuple[int, int]] = wait_for(known, START_S, f"hosts of {names}")
        return found


class RayProxy(_WithReplicas, ProxyThread):
    """A proxy with replicas, in a thread of this process."""

    @classmethod
    def of(cls, cluster: RayCluster, folder: Path, *options: str) -> RayProxy:
        """Make a proxy of a cluster."""
        return cls(folder, *ray_options(cluster, folder, *options))


class RayProxyProcess(_WithReplicas, ProxyProcess):
    """A proxy with replicas, in a process of its own."""


def parent(pid: int) -> int:
    """Return the parent of a process; 0 if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    # The name of the program, in parentheses, may contain spaces and parentheses.
    return int(text.rpartition(")")[2].split()[1])


def tree(pid: int) -> list[int]:
    """Return a process and all that it has started, directly or not."""
    parents = {int(entry): parent(int(entry)) for entry in os.listdir("/proc") if entry.isdecimal()}
    found = [pid]
    for one in found:
        found += [child for child, of in parents.items() if of == one]
    return found


def desired_of(folder: Path, replica: str) -> dict[str, Any]:
    """Return what the host of a replica is to serve; {} if it has not been told yet."""
    try:
        found: dict[str, Any] = json.loads((folder / "nodes" / replica / "desired.json").read_bytes())
    except OSError:
        return {}
    return found
