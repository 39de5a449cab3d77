# SPDX-License-Identifier: Apache-2.0
"""Machines with real hosts, whose proxy and agents are killed under load."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator

import pytest

from load_tests.fleet.clients import RoundRobinClients, predict_request
from load_tests.fleet.machine import FleetMachine
from load_tests.fleet.setup import FleetProxy, make_certificates, wait_until
from load_tests.workloads import ensure_model

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FleetProxy, list[FleetMachine]]]:
    """A proxy, and two machines that serve a model."""
    folder = tmp_path_factory.mktemp("fleet")
    make_certificates(folder)
    with FleetProxy(folder) as proxy:
        machines = [FleetMachine(folder, f"machine-{number}", proxy) for number in range(2)]
        try:
            yield proxy, machines
        finally:
            for machine in machines:
                machine.end(signal.SIGKILL)


def states(machine: FleetMachine) -> dict[str, str]:
    """Return the states of the versions of `tiny` that a host reports."""
    actual = json.loads((machine.state_dir / "hosts" / "host-0" / "actual.json").read_bytes())
    return {number: version["state"] for number, version in actual["models"]["tiny"]["versions"].items()}


def test_host_is_not_ready_before_it_has_loaded_the_first_state(fleet: tuple[FleetProxy, list[FleetMachine]]) -> None:
    proxy, machines = fleet
    for machine in machines:
        machine.state_dir.mkdir()
        (machine.state_dir / "desired.json").write_text('{"schema": 1, "generation": 0, "models": {}, "waiting": "x"}')
        machine.start_host()
    wait_until(lambda: all((machine.state_dir / "hosts" / "host-0" / "actual.json").exists() for machine in machines))
    time.sleep(1.0)
    for machine in machines:
        actual = json.loads((machine.state_dir / "hosts" / "host-0" / "actual.json").read_bytes())
        assert actual["state"] != "ready"
        assert (actual["waiting"], actual["desired_error"]) == ("x", None)
    proxy.client.deploy("tiny", ensure_model("tiny"), version=1)
    for machine in machines:
        machine.start_agent()
        machine.wait_ready()
        assert states(machine) == {"1": "ready"}


def test_no_request_is_lost_when_proxy_and_agents_are_killed(fleet: tuple[FleetProxy, list[FleetMachine]]) -> None:
    proxy, machines = fleet
    addresses = [machine.address for machine in machines]
    with RoundRobinClients(addresses, predict_request(), retries=False) as clients:
        proxy.client.deploy("tiny", ensure_model("tiny"), version=2, wait=True, timeout=120, other_signature=True)
        time.sleep(1.0)
        machines[1].kill_agent()
        proxy.client.promote("tiny", 2)
        wait_until(lambda: _baseline(machines[0]) == 2)
        assert _baseline(machines[1]) == 1
        proxy.kill()
        time.sleep(2.0)
        machines[0].kill_agent()
        time.sleep(2.0)
        assert [states(machine)["1"] for machine in machines] == ["ready", "ready"]
        with proxy:
            for machine in machines:
                machine.start_agent()
            wait_until(lambda: [_baseline(machine) for machine in machines] == [2, 2])
            wait_until(lambda: [found["state"] for found in proxy.client.status()["machines"]] == ["current"] * 2)
            time.sleep(1.0)
    assert clients.lost == 0, clients.statuses
    assert clients.statuses.total() > 1000


def _baseline(machine: FleetMachine) -> int:
    found = json.loads((machine.state_dir / "desired.json").read_bytes())
    return int(found["models"]["tiny"]["baseline"])
