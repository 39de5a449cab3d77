# SPDX-License-Identifier: Apache-2.0
"""A proxy whose scripted hosts run as actors of a real Ray cluster, with several nodes on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.proxy_runs import ROOT, ProxyThread, host_program, wait_for, write_model
from helpers.system.programs import skip_or_fail
from load_tests.fleet.ray_cluster import RayCluster, ray_cluster
from serving_proxy.errors import UnavailableError
from serving_proxy.leadership.leading import Leadership
from serving_proxy.leadership.lease import renewed
from serving_proxy.leadership.ray_lease import RayLease
from serving_proxy.state_dir.actual import process_runs

_START_S = 300.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """A cluster with two nodes, on which hosts are scripted."""
    if importlib.util.find_spec("ray") is None:
        skip_or_fail("ray: not installed, so the actors are not tested")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECPROCESSOR_HOST", str(host_program(tmp_path_factory.mktemp("host"))))
        with ray_cluster(cpus=2) as made:
            made.add_node(cpus=2)
            yield made


class RayProxy(ProxyThread):
    """A proxy with replicas."""

    def replicas(self) -> dict[str, dict[str, Any]]:
        """Return the replicas by name."""
        found = self.client().status()["replicas"]
        return {replica["name"]: replica for replica in found["replicas"]}

    def wait_ready(self, *names: str) -> dict[str, dict[str, Any]]:
        """Wait until these replicas are ready, and there are no others."""

        def ready() -> Any:
            found = self.replicas()
            return found if [*found] == [*names] and all(one["state"] == "ready" for one in found.values()) else None

        found: dict[str, dict[str, Any]] = wait_for(ready, _START_S, f"replicas {names}")
        return found


def make_proxy(cluster: RayCluster, folder: Path, *options: str) -> RayProxy:
    ray_options = ("--engine", "ray", "--ray-address", cluster.address, "--ray-namespace", folder.name)
    return RayProxy(folder, *ray_options, "--replica-folder", str(folder / "nodes"), *options)


def test_deployment_reaches_all_replicas_and_a_killed_actor_comes_back(cluster: RayCluster, tmp_path: Path) -> None:
    with make_proxy(cluster, tmp_path / "fleet", "--replicas", "2") as proxy:
        client = proxy.client()
        client.deploy("a", write_model(tmp_path / "models" / "1"), version=1)
        found = proxy.wait_ready("replica-0", "replica-1")
        assert len({replica["node"] for replica in found.values()}) == 2
        wait_for(
            lambda: [host["name"] for host in client.status()["hosts"]] == ["replica-0/host-0", "replica-1/host-0"]
        )
        client.deploy("a", write_model(tmp_path / "models" / "2"), version=2, wait=True, timeout=60)
        hosts = {host["name"]: host for host in client.status()["hosts"]}
        assert all(host["alive"] for host in hosts.values())
        killed = hosts["replica-1/host-0"]["pid"]
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: proxy.replicas()["replica-1"]["restarts"] == 1, _START_S)
        proxy.wait_ready("replica-0", "replica-1")
        actor, host = wait_for(lambda: both if 0 not in (both := parent_of(proxy, "replica-1/host-0")) else None)
        os.kill(actor, signal.SIGKILL)
        wait_for(lambda: not process_runs(host), _START_S, "a host that ends with its actor")
        wait_for(
            lambda: (found := parent_of(proxy, "replica-1/host-0"))[0] not in {0, actor} and found[1] != host, _START_S
        )
        proxy.wait_ready("replica-0", "replica-1")


def parent_of(proxy: RayProxy, name: str) -> tuple[int, int]:
    """Return the process of an actor, and that of its host; zeros if there is none."""
    host = next(int(host["pid"]) for host in proxy.client().status()["hosts"] if host["name"] == name)
    try:
        # A host that is not alive has the number 0.
        return int(Path(f"/proc/{host}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1]), host
    except OSError:
        return 0, host


def test_an_actor_says_which_proxy_leads(cluster: RayCluster) -> None:
    import ray

    leases = [RayLease(cluster.address, "leases") for _ in range(2)]
    first, second = (Leadership(lease, f"http://{name}", 600.0) for lease, name in zip(leases, "ab", strict=True))

    async def run() -> None:
        await until(lambda: first.look())
        held = first.seen
        assert held is not None
        await until(lambda: asyncio.to_thread(lambda: leases[1].read() == held))
        assert not await second.look()
        # The actor is started again, and has forgotten the lease; its holder goes on.
        ray.init(cluster.address, namespace="leases", log_to_driver=False)
        try:
            ray.kill(ray.get_actor("lease"), no_restart=False)
        finally:
            ray.shutdown()
        await until(lambda: asyncio.to_thread(leases[0].renew, renewed(held)))
        await until(lambda: asyncio.to_thread(lambda: leases[1].read() == renewed(held)))
        assert not await second.look()
        await first.release()
        await until(lambda: second.look(known_term=1))
        assert second.term == 2
        assert not await asyncio.to_thread(leases[0].renew, renewed(renewed(held)))

    try:
        asyncio.run(run())
    finally:
        for lease in leases:
            lease.close()


def test_driver_ends_with_the_proxy_while_it_connects() -> None:
    if importlib.util.find_spec("ray") is None:
        skip_or_fail("ray: not installed, so its driver is not tested")
    nobody = json.dumps({"address": "127.0.0.99:9", "namespace": "n"})
    command = [sys.executable, "-m", "serving_proxy.ray_driver", nobody]
    driver = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT
    )
    try:
        wait_for(lambda: b"_raylet" in Path(f"/proc/{driver.pid}/maps").read_bytes(), _START_S, "a driver with Ray")
        assert driver.communicate(timeout=_START_S)[0] == b""
        assert driver.returncode == 0
    finally:
        driver.kill()
        driver.wait()


async def until(found: Callable[[], Awaitable[bool]]) -> None:
    """Call a function until its result is true; an actor that is being started does not answer in time."""
    async with asyncio.timeout(_START_S):
        while True:
            with contextlib.suppress(UnavailableError):
                if await found():
                    return
            await asyncio.sleep(0.2)
