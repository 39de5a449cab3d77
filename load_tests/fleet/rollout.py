# SPDX-License-Identifier: Apache-2.0
"""`rollout`: requests that are lost while machines come and go, and while their hosts are upgraded one by one.

Clients use grpcio with round robin, and without retries: a request that reaches a host which is not ready is lost. The
hosts of the earlier release are those of this one without one of their features (`PROCESSOR_WITHOUT_FEATURES`).
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
from load_tests.fleet.setup import FleetProxy, Setup, make_certificates, wait_until
from load_tests.workloads import ensure_model

__all__ = ["judge", "measure"]

_MACHINES = 3
_FEATURE = "version:limits"


def measure(setup: Setup) -> dict[str, Any]:
    """Add and remove a machine, then upgrade the hosts of all machines."""
    model = ensure_model("tiny")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_certificates(folder)
        with FleetProxy(folder) as proxy:
            machines = [FleetMachine(folder, f"machine-{number}", proxy) for number in range(_MACHINES)]
            proxy.client.deploy("tiny", model)
            try:
                for machine in machines:
                    machine.start()
                scaled = _scaled(setup, proxy, machines)
                upgraded = _upgraded(setup, proxy, machines, model)
            finally:
                for machine in machines:
                    machine.end(signal.SIGKILL)
    return {"scaled": scaled, "upgraded": upgraded}


def judge(case: dict[str, Any]) -> list[Target]:
    """Return the targets."""
    return [
        Target("requests lost when machines come and go, without retries", case["scaled"]["lost"], 0, at_least=False),
        Target("requests lost in a rolling upgrade, without retries", case["upgraded"]["lost"], 0, at_least=False),
    ]


def _scaled(setup: Setup, proxy: FleetProxy, machines: list[FleetMachine]) -> dict[str, Any]:
    *_, last = machines
    with _clients(machines) as clients:
        for _ in range(setup.rounds):
            time.sleep(setup.seconds)
            proxy.client.drain(last.name)
            last.wait_host_end()
            last.end(signal.SIGTERM)
            time.sleep(setup.seconds)
            last.start_agent()
            last.start_host()
            proxy.client.drain(last.name, drain=False)
            last.wait_ready()
        time.sleep(setup.seconds)
    return _found(clients)


def _upgraded(setup: Setup, proxy: FleetProxy, machines: list[FleetMachine], model: Path) -> dict[str, Any]:
    with _clients(machines) as clients:
        for _ in range(1 if setup.quick else 2):
            # Down, and up again.
            for variables in ({"PROCESSOR_WITHOUT_FEATURES": _FEATURE}, {}):
                for machine in machines:
                    time.sleep(setup.seconds / 3)
                    proxy.client.drain(machine.name)
                    machine.wait_host_end()
                    machine.start_host(**variables)
                    proxy.client.drain(machine.name, drain=False)
                    machine.wait_ready()
        time.sleep(setup.seconds)
    # Now all hosts are of a release that knows the feature.
    wait_until(lambda: [found["state"] for found in proxy.client.status()["machines"]] == ["current"] * _MACHINES)
    limits = {"max_in_flight": 100}
    proxy.client.deploy("tiny", model, version=2, limits=limits, traffic=10, wait=True, timeout=120)
    return _found(clients)


def _clients(machines: list[FleetMachine]) -> RoundRobinClients:
    return RoundRobinClients([machine.address for machine in machines], predict_request(), retries=False)


def _found(clients: RoundRobinClients) -> dict[str, Any]:
    found = {"requests": clients.statuses.total(), "lost": clients.lost, **dict(clients.statuses)}
    return {**found, "slowest_s": clients.slowest_s}
