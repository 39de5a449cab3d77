# SPDX-License-Identifier: Apache-2.0
"""Hosts of machines are drained through their agents, and stay so whatever starts them again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.agent_runs import Machine
from helpers.proxies.proxy_runs import ProxyThread, wait_for, write_model
from serving_proxy import Client
from serving_proxy.deploy.desired_state import HostSettings
from serving_proxy.errors import NotFoundError, PreconditionError
from serving_proxy.fleet.drains import Drains
from serving_proxy.fleet.machines import Machines
from serving_proxy.records.features import FIRST


def set_features(machine: Machine, *more: str) -> None:
    path = machine.state_dir / "hosts" / "host-0" / "features"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(sorted(FIRST | {*more})), encoding="ascii")


def states(client: Client) -> dict[str, Any]:
    return {host["name"]: host["state"] for host in client.status()["hosts"]}


def test_drained_host_ends_and_is_not_ready_before_the_drain_is_over(tmp_path: Path) -> None:
    with ProxyThread(tmp_path, "--engine", "agents") as proxy, proxy.client() as client:
        machines = [Machine.of(proxy, name) for name in ("m-0", "m-1")]
        for machine in machines:
            set_features(machine, "host:drained")
        with machines[0] as drained, machines[1]:
            client.deploy("ranking", write_model(tmp_path / "1"), wait=True, timeout=120)
            wait_for(lambda: states(client) == {"m-0/host-0": "ready", "m-1/host-0": "ready"})
            client.drain("m-0")
            assert drained.host is not None
            assert drained.host.wait(60) == 0
            wait_for(lambda: states(client) == {"m-0/host-0": "stopped", "m-1/host-0": "ready"})
            assert [machine["reason"] for machine in client.status()["machines"]] == ["drained", ""]
            # Whatever runs the host starts it again: it loads its versions, and is not ready.
            drained.start_host()
            wait_for(lambda: states(client)["m-0/host-0"] == "starting")
            client.deploy("ranking", write_model(tmp_path / "2"), wait=True, timeout=120)
            assert states(client)["m-0/host-0"] == "starting"
            client.drain("m-0", drain=False)
            wait_for(lambda: states(client) == {"m-0/host-0": "ready", "m-1/host-0": "ready"})
            client.drain("m-1/host-0")
            wait_for(lambda: states(client) == {"m-0/host-0": "ready", "m-1/host-0": "stopped"})
            said = [event["message"] for event in client.events() if event["kind"] == "drain"]
            assert said == ["m-0: drains", "m-0: may be ready again", "m-1/host-0: drains"]
    # Another proxy of the same state continues; its lock must not be taken for that of the first.
    (tmp_path / "state" / "proxy.lock").unlink()
    with ProxyThread(tmp_path, "--engine", "agents") as proxy, proxy.client() as client, Machine.of(proxy, "m-1"):
        wait_for(lambda: states(client).get("m-1/host-0") == "starting")
        client.drain(drain=False)
        wait_for(lambda: states(client)["m-1/host-0"] == "ready")


def test_what_cannot_be_drained_is_named(tmp_path: Path) -> None:
    with ProxyThread(tmp_path, "--engine", "agents") as proxy, proxy.client() as client:
        with pytest.raises(NotFoundError, match="machine 'm-0': unknown, expected one of none"):
            client.drain("m-0")
        with Machine.of(proxy, "m-0") as machine:
            wait_for(lambda: states(client) == {"m-0/host-0": "ready"})
            with pytest.raises(NotFoundError, match="host 'm-0/x': unknown, expected one of m-0/host-0"):
                client.drain("m-0/x")
            with pytest.raises(PreconditionError, match=r"m-0/host-0 \(release 9.1\): lacks host:drained"):
                client.drain("m-0")
            set_features(machine, "host:drained")
            (machine.state_dir / "hosts" / "host-0" / "cpus").write_text("1")
            wait_for(lambda: client.status()["hosts"][0]["cpus"] == "1")
            client.drain("m-0")
            with pytest.raises(PreconditionError, match="its machine is drained, expected drain --off m-0"):
                client.drain("m-0/host-0", drain=False)
            # Only the begin of a drain needs the feature.
            set_features(machine)
            (machine.state_dir / "hosts" / "host-0" / "cpus").write_text("2")
            wait_for(lambda: client.status()["hosts"][0]["cpus"] == "2")
            client.drain("m-0", drain=False)
            assert client.status()["machines"][0]["reason"] == ""


class Stored:
    """Control of a proxy whose settings are in memory."""

    def __init__(self, *drained: str) -> None:
        self.host_settings = HostSettings(drained=drained)
        self.repository = self
        self.stored: list[str] = []

    def setting(self, name: str) -> None:
        """Return nothing: no proxy was before."""

    def set_setting(self, name: str, value: list[str]) -> None:
        self.stored = value

    def drain(self, hosts: Iterable[str]) -> None:
        self.host_settings = HostSettings(drained=tuple(sorted(hosts)))

    def note(self, kind: str, message: str) -> None:
        """Record nothing."""


def test_drain_of_a_machine_that_is_gone_can_end() -> None:
    control: Any = Stored("m-0/*", "m-1/*", "m-1/host-0", "m-2/host-0")
    drains = Drains(control, Machines())
    drains.drain("m-2/host-0", False)
    assert control.stored == ["m-0/*", "m-1/*", "m-1/host-0"]
    # A replica's number is used again once it was removed.
    drains.forget("m-1")
    assert control.stored == ["m-0/*"]
    with pytest.raises(NotFoundError):
        drains.drain("m-1", False)
    drains.drain("m-0", False)
    assert control.stored == list(control.host_settings.drained) == []
