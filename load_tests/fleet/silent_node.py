# SPDX-License-Identifier: Apache-2.0
"""`silent_node`: requests that are lost when packets from and to one of two machines are dropped under load.

The machine has a network of its own (a namespace, which needs root), and its cable falls silent: connections stay open,
and nobody is told. Clients use grpcio with the retries and the keepalive of docs/fleet.md. Their requests wait for the
silent machine until TCP gives up, after the time limit of keepalive, and then go to the other one.
"""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from load_tests._report import Target
from load_tests.fleet.clients import RoundRobinClients, predict_request
from load_tests.fleet.machine import FleetMachine
from load_tests.fleet.network import Network
from load_tests.fleet.setup import FleetProxy, Setup, make_certificates, wait_until
from load_tests.workloads import ensure_model

__all__ = ["judge", "measure"]

_LIMIT_S = 10.0
_SILENT_S = 15.0


def measure(setup: Setup) -> dict[str, Any]:
    """Let a machine fall silent under load, and speak again."""
    if not Network.is_possible():
        return {"skipped": "network namespaces need root and `ip`"}
    model = ensure_model("tiny")
    with tempfile.TemporaryDirectory() as name, Network() as network:
        folder = Path(name)
        make_certificates(folder, network.outside)
        with FleetProxy(folder, options=("--admin-address", "0.0.0.0")) as proxy:
            machines = [FleetMachine(folder, "machine-0", proxy), FleetMachine(folder, "machine-1", proxy, network)]
            proxy.client.deploy("tiny", model)
            try:
                for machine in machines:
                    machine.start()
                rounds = [_round(setup, proxy, machines, network) for _ in range(1 if setup.quick else 3)]
            finally:
                for machine in machines:
                    machine.end(signal.SIGKILL)
    return {"rounds": rounds}


def judge(case: dict[str, Any]) -> list[Target]:
    """Return the targets."""
    if "skipped" in case:
        return []
    lost = sum(found["lost"] for found in case["rounds"])
    slowest = max(found["slowest_s"] for found in case["rounds"])
    return [
        Target("requests lost when a machine falls silent, with retries", lost, 0, at_least=False),
        Target("slowest request when a machine falls silent [s]", slowest, _LIMIT_S, at_least=False),
    ]


def _round(setup: Setup, proxy: FleetProxy, machines: list[FleetMachine], network: Network) -> dict[str, Any]:
    def state() -> str:
        return str(proxy.client.status()["machines"][1]["state"])

    with RoundRobinClients([machine.address for machine in machines], predict_request(), retries=True) as clients:
        time.sleep(setup.seconds)
        before = clients.statuses.total()
        network.fall_silent()
        begun = time.monotonic()
        wait_until(lambda: state() == "away")
        away_s = time.monotonic() - begun
        time.sleep(max(0.0, _SILENT_S - away_s))
        during = clients.statuses.total() - before
        network.speak_again()
        wait_until(lambda: state() == "current")
        time.sleep(setup.seconds)
    found = {"requests": clients.statuses.total(), "lost": clients.lost, **dict(clients.statuses)}
    return {**found, "slowest_s": clients.slowest_s, "away_s": away_s, "requests_while_silent": during}
