# SPDX-License-Identifier: Apache-2.0
"""`dying_host`: requests that are lost when one of two machines dies, drains or comes back under load.

Clients use grpcio as docs/fleet.md says: both addresses, round robin, and retries of UNAVAILABLE. The rounds are
repeated without retries, for comparison.
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
from load_tests.fleet.setup import FleetProxy, Setup, make_certificates
from load_tests.workloads import ensure_model

__all__ = ["judge", "measure"]


def measure(setup: Setup) -> dict[str, Any]:
    """Kill and drain a machine under load, and start it again."""
    model = ensure_model("tiny")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_certificates(folder)
        with FleetProxy(folder) as proxy:
            machines = [FleetMachine(folder, f"machine-{number}", proxy) for number in range(2)]
            proxy.client.deploy("tiny", model)
            for machine in machines:
                machine.start()
            try:
                request = predict_request()
                killed = _rounds(setup, machines, request, signal.SIGKILL, retries=True)
                drained = _rounds(setup, machines, request, signal.SIGTERM, retries=True)
                without = _rounds(setup, machines, request, signal.SIGKILL, retries=False)
            finally:
                for machine in machines:
                    machine.end(signal.SIGKILL)
    return {"killed": killed, "drained": drained, "killed_without_retries": without, "rounds": setup.rounds}


def judge(case: dict[str, Any]) -> list[Target]:
    """Return the targets."""
    return [
        Target("requests lost when a machine dies, with retries", case["killed"]["lost"], 0, at_least=False),
        Target("requests lost when a machine drains and comes back", case["drained"]["lost"], 0, at_least=False),
    ]


def _rounds(
    setup: Setup, machines: list[FleetMachine], request: bytes, number: signal.Signals, retries: bool
) -> dict[str, Any]:
    with RoundRobinClients([machine.address for machine in machines], request, retries) as clients:
        for _ in range(setup.rounds):
            time.sleep(setup.seconds)
            machines[1].end(number)
            time.sleep(setup.seconds)
            machines[1].start()
        time.sleep(setup.seconds)
    return {"requests": clients.statuses.total(), "lost": clients.lost, **dict(clients.statuses)}
