# SPDX-License-Identifier: Apache-2.0
"""`ray_takeover`: a proxy on Ray is killed under load, and the one on standby leads, because an actor says so."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from load_tests._report import Target
from load_tests.fleet.clients import RoundRobinClients, predict_request
from load_tests.fleet.ray_cluster import ray_cluster
from load_tests.fleet.ray_replicas import host_pids, ray_options, wait_for_replicas
from load_tests.fleet.setup import FleetProxy, Setup, make_certificates, wait_until
from load_tests.ports import free_port
from load_tests.workloads import ensure_model

__all__ = ["judge", "measure"]

_WAIT_S = 300.0


def measure(setup: Setup) -> dict[str, Any]:
    """Kill the leader several times; it comes back as the standby."""
    model = ensure_model("tiny")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        make_certificates(folder)
        cluster = stack.enter_context(ray_cluster())
        port = free_port()
        addresses = [f"{cluster.add_node(cpus=1)[0]}:{port}" for _ in range(2)]
        shared = ("--shared-store", f"file://{folder}/shared", "--new-store", "--lease", "ray")
        options = (*ray_options(folder, cluster, port, replicas=2), *shared)
        leader, standby = (stack.enter_context(FleetProxy(folder, name, options, "ray")) for name in "ab")
        wait_until(lambda: leader.leads or standby.leads, _WAIT_S)
        if not leader.leads:
            leader, standby = standby, leader
        leader.client.deploy("tiny", model)
        wait_for_replicas(leader, 2)
        hosts = host_pids(leader, 2)
        rounds = []
        with RoundRobinClients(addresses, predict_request(), retries=True) as clients:
            for _ in range(setup.rounds):
                time.sleep(setup.seconds)
                begun = time.monotonic()
                leader.kill()
                wait_until(partial(_leads, standby), _WAIT_S)
                leads_s = time.monotonic() - begun
                if host_pids(standby, 2) != hosts:
                    raise AssertionError("hosts were started again, expected them to go on without the proxy")
                rounds.append({"lead_s": leads_s, "follow_s": time.monotonic() - begun})
                wait_for_replicas(standby, 2)
                leader.__enter__()
                leader, standby = standby, leader
                # The new standby has had the time to connect to the cluster and to read the log.
                time.sleep(10.0)
        lost = {"requests": clients.statuses.total(), "lost": clients.lost, **dict(clients.statuses)}
    slowest = {name: max(found[name] for found in rounds) for name in ("lead_s", "follow_s")}
    return {**lost, **slowest, "rounds": rounds}


def judge(case: dict[str, Any]) -> list[Target]:
    """Return the targets."""
    return [
        Target("takeover on Ray, slowest [s]", case["lead_s"], 10.0, at_least=False),
        Target("requests lost on Ray, leader killed", case["lost"], 0, at_least=False),
    ]


def _leads(proxy: FleetProxy) -> bool:
    return proxy.leads
