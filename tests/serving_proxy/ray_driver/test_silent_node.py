# SPDX-License-Identifier: Apache-2.0
"""A node of Ray falls silent: all of its processes are stopped (SIGSTOP), as if its machine or its network hung.

Its connections stay open and nobody is told, as when packets are dropped, which `bench_fleet --only ray_silent` does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.proxy_runs import host_program, wait_for, write_model
from helpers.proxies.ray_runs import START_S, RayProxy, need_ray, tree
from load_tests.fleet.ray_cluster import RayCluster, ray_cluster
from serving_proxy.state_dir.actual import process_runs

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayCluster]:
    need_ray()
    monkeypatch.setenv("RECPROCESSOR_HOST", str(host_program(tmp_path)))
    with ray_cluster(cpus=1) as made:
        yield made


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def test_replica_of_a_silent_node_is_replaced_and_the_node_may_come_back(cluster: RayCluster, tmp_path: Path) -> None:
    silent, node = cluster.add_node(cpus=1, folder=tmp_path / "silent")
    with RayProxy.of(cluster, tmp_path / "fleet", "--replicas", "2") as proxy:
        client = proxy.client()
        client.deploy("a", write_model(tmp_path / "models" / "1"))
        replicas = proxy.wait_ready("replica-0", "replica-1")
        (name,) = [name for name, replica in replicas.items() if replica["node"] == silent]
        before = proxy.processes("replica-0", "replica-1")

        def addresses() -> set[str]:
            found: list[Any] = client.endpoints("a")["endpoints"]
            return {endpoint["addresses"]["grpc"].partition(":")[0] for endpoint in found}

        wait_for(lambda: len(addresses()) == 2, START_S)
        spare, _ = cluster.add_node(cpus=1, folder=tmp_path / "spare")
        raylet = cluster.raylet(node)
        stopped = tree(raylet.pid)
        assert set(before[name]) <= {*stopped}
        begun = time.monotonic()
        try:
            send(stopped, signal.SIGSTOP)
            wait_for(lambda: silent not in addresses(), START_S)
            print(f"endpoints without it after {time.monotonic() - begun:.1f} s")
            wait_for(lambda: spare in addresses(), START_S)
            print(f"another one after {time.monotonic() - begun:.1f} s")
            assert proxy.wait_ready("replica-0", "replica-1")[name]["node"] == spare
            after = proxy.processes("replica-0", "replica-1")
            assert after[name] != before[name]
            assert [one for one in before if after[one] == before[one]] == [other for other in before if other != name]

            # It has been replaced, so all of it ends; the replica with its name goes on where it is now.
            send(stopped, signal.SIGCONT)
            # Its other processes look whether it is there, and a zombie is.
            wait_for(lambda: raylet.poll() is not None and not any(map(process_runs, stopped)), START_S)
        finally:
            send(stopped, signal.SIGKILL)
        assert proxy.processes("replica-0", "replica-1") == after
        assert addresses() == {replica["node"] for replica in proxy.wait_ready("replica-0", "replica-1").values()}
        assert client.versions("a")["versions"][0]["state"] == "ready"
