# SPDX-License-Identifier: Apache-2.0
"""A proxy whose scripted hosts run as actors of a real Ray cluster, with several nodes on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.proxy_runs import ROOT, host_program, wait_for, write_model
from helpers.proxies.ray_runs import START_S, RayProxy, need_ray, parent
from load_tests.fleet.ray_cluster import RayCluster, ray_cluster
from serving_proxy.errors import UnavailableError
from serving_proxy.leadership.leading import Leadership
from serving_proxy.leadership.lease import Held, renewed
from serving_proxy.leadership.ray_lease import RayLease
from serving_proxy.state_dir.actual import process_runs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """A cluster with two nodes, on which hosts are scripted."""
    need_ray()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECPROCESSOR_HOST", str(host_program(tmp_path_factory.mktemp("host"))))
        with ray_cluster(cpus=2) as made:
            made.add_node(cpus=2)
            yield made


def test_deployment_reaches_all_replicas_and_a_killed_actor_comes_back(cluster: RayCluster, tmp_path: Path) -> None:
    with RayProxy.of(
        cluster, tmp_path / "fleet", "--replicas", "2", "--replica-folder", str(tmp_path / "nodes")
    ) as proxy:
        client = proxy.client()
        client.deploy("a", write_model(tmp_path / "models" / "1"), version=1)
        found = proxy.wait_ready("replica-0", "replica-1")
        assert len({replica["node"] for replica in found.values()}) == 2
        wait_for(
            lambda: [host["name"] for host in client.status()["hosts"]] == ["replica-0/host-0", "replica-1/host-0"]
        )
        client.deploy("a", write_model(tmp_path / "models" / "2"), version=2, wait=True, timeout=120)
        hosts = {host["name"]: host for host in client.status()["hosts"]}
        assert all(host["alive"] for host in hosts.values())
        killed = hosts["replica-1/host-0"]["pid"]
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: proxy.replicas()["replica-1"]["restarts"] == 1, START_S)
        proxy.wait_ready("replica-0", "replica-1")
        actor, host = wait_for(lambda: both if 0 not in (both := parent_of(proxy, "replica-1/host-0")) else None)
        os.kill(actor, signal.SIGKILL)
        wait_for(lambda: not process_runs(host), START_S, "a host that ends with its actor")
        wait_for(
            lambda: (found := parent_of(proxy, "replica-1/host-0"))[0] not in {0, actor} and found[1] != host, START_S
        )
        proxy.wait_ready("replica-0", "replica-1")


def parent_of(proxy: RayProxy, name: str) -> tuple[int, int]:
    """Return the process of an actor, and that of its host; zeros if there is none."""
    host = next((int(host["pid"]) for host in proxy.client().status()["hosts"] if host["name"] == name), 0)
    return parent(host), host


def test_an_actor_says_which_proxy_leads(cluster: RayCluster) -> None:
    import ray

    leases = [RayLease(cluster.address, "leases", 5.0) for _ in range(2)]
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


@pytest.mark.long
def test_limit_of_a_request_for_the_lease_is_the_given_one(cluster: RayCluster) -> None:
    """While the actor is stopped for four seconds, one request is given up, and the other one waits for it."""
    import ray

    leases = quick, patient = [RayLease(cluster.address, "limits", limit_s) for limit_s in (0.5, 100.0)]
    held = Held(1, "a", "http://a", 600.0)
    try:
        for lease in leases:
            wait_for(partial(can_read, lease), START_S)
        assert quick.take(held)
        drivers = [driver_of(lease) for lease in leases]
        ray.init(cluster.address, namespace="limits", log_to_driver=False)
        try:

            def whereabouts(_: object) -> tuple[int, str]:
                return os.getpid(), str(ray.get_runtime_context().get_node_id())

            (head,) = [node["NodeID"] for node in ray.nodes() if "node:__internal_head__" in node["Resources"]]
            actor, node = ray.get(ray.get_actor("lease").__ray_call__.remote(whereabouts))
            assert node == head
        finally:
            ray.shutdown()
        os.kill(actor, signal.SIGSTOP)
        waker = threading.Timer(4.0, os.kill, (actor, signal.SIGCONT))
        waker.start()
        with pytest.raises(UnavailableError, match=r"--lease ray, .*read_lease"):
            quick.read()
        assert patient.read() == held
        waker.join()
        wait_for(partial(can_read, quick))
        assert [driver_of(lease) for lease in leases] == drivers
    finally:
        for lease in leases:
            lease.close()


def can_read(lease: RayLease) -> bool:
    """Return whether the actor answers; one that is being started does not in time."""
    with contextlib.suppress(UnavailableError):
        lease.read()
        return True
    return False


def driver_of(lease: Any) -> int:
    """Return the process that talks to Ray."""
    return int(lease._process.pid)


def test_driver_ends_with_the_proxy_while_it_connects() -> None:
    need_ray()
    nobody = json.dumps({"address": "127.0.0.99:9", "namespace": "n"})
    command = [sys.executable, "-m", "serving_proxy.ray_driver", nobody]
    driver = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT
    )
    try:
        wait_for(lambda: b"_raylet" in Path(f"/proc/{driver.pid}/maps").read_bytes(), START_S, "a driver with Ray")
        assert driver.communicate(timeout=START_S)[0] == b""
        assert driver.returncode == 0
    finally:
        driver.kill()
        driver.wait()


async def until(found: Callable[[], Awaitable[bool]]) -> None:
    """Call a function until its result is true; an actor that is being started does not answer in time."""
    async with asyncio.timeout(START_S):
        while True:
            with contextlib.suppress(UnavailableError):
                if await found():
                    return
            await asyncio.sleep(0.2)
