# SPDX-License-Identifier: Apache-2.0
"""A placement that a real proxy applies to three machines: real agents and files, and hosts that load nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.agent_runs import Machine
from helpers.proxies.proxy_runs import ProxyThread, wait_for, write_model
from serving_proxy import Client
from serving_proxy.errors import InvalidError, LateError, PreconditionError

Fleet = tuple[ProxyThread, dict[str, Machine]]
NAMES = ("m1", "m2", "m3")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A proxy and three machines."""
    with (
        ProxyThread(tmp_path_factory.mktemp("fleet"), "--engine", "agents") as proxy,
        Machine.of(proxy, "m1") as first,
        Machine.of(proxy, "m2") as second,
        Machine.of(proxy, "m3") as third,
        proxy.client() as client,
    ):
        wait_for(lambda: len([host for host in client.status()["hosts"] if host["alive"]]) == 3)
        yield proxy, dict(zip(NAMES, (first, second, third), strict=True))


@pytest.fixture
def client(fleet: Fleet) -> Iterator[Client]:
    with fleet[0].client() as client:
        yield client
        client.clear_placement()


def placement(**models: str) -> dict[str, Any]:
    """Return a placement: machines by model."""
    replicas = [
        {"name": model, "model": model, "version": None, "machine": machine}
        for model, machines in models.items()
        for machine in machines.split()
    ]
    return {"schema": "placement/1", "replicas": replicas}


def machines_of(fleet: Fleet, model: str) -> list[str]:
    """Return the machines whose hosts are to serve a model."""
    return [name for name, machine in fleet[1].items() if machine.versions(model)]


def test_each_machine_gets_what_is_placed_there_and_ready_means_there(
    fleet: Fleet, client: Client, name: str, model: Callable[..., Path]
) -> None:
    client.apply_placement(placement(**{name: "m1 m3"}), handover_s=0)
    # No host of the second machine has it, and none is waited for.
    found = client.deploy(name, model(1), wait=True, timeout=120)["model"]["versions"][0]
    # Once more the same changes nothing.
    before = client.placement()["applied"]
    assert client.apply_placement(placement(**{name: "m1 m3"}), handover_s=0)["applied"] == before
    assert (found["machines"], sorted(found["hosts"])) == (["m1", "m3"], ["m1/host-0", "m3/host-0"])
    client.deploy(name, model(2), wait=True, timeout=120, traffic=10)
    wait_for(lambda: [machine.versions(name) for machine in fleet[1].values()] == [[1, 2], [], [1, 2]])
    assert fleet[1]["m3"].desired()["models"][name]["routing"]["arms"][0]["version"] == 2
    assert "annotations" not in fleet[1]["m3"].desired()["models"][name]
    other = f"{name}-other"
    client.deploy(other, model(3), wait=True, timeout=120)
    assert machines_of(fleet, other) == list(NAMES)
    said = f"{other}: has no entry in the placement, so it is on all machines"
    wait_for(lambda: said in [event["message"] for event in client.events(model=other)])


def test_model_moves_once_its_new_machine_is_ready(
    fleet: Fleet, client: Client, name: str, model: Callable[..., Path]
) -> None:
    client.deploy(name, model(1), wait=True, timeout=120)
    assert machines_of(fleet, name) == list(NAMES)
    client.apply_placement(placement(**{name: "m1"}), handover_s=0)
    client.wait_for_placement(60)
    wait_for(lambda: machines_of(fleet, name) == ["m1"])
    # A machine without room; the first keeps the model.
    refusal = fleet[1]["m2"].state_dir / "hosts" / "host-0" / "refuse"
    refusal.write_text("needs 9 GB, expected at most 2 GB")
    client.apply_placement(placement(**{name: "m2"}), handover_s=0)
    wait_for(lambda: "needs 9 GB" in (client.placement()["models"][0]["waits_for"] or ""))
    # The version can still be rolled back to, or be given a share.
    assert [version["state"] for version in client.versions(name)["versions"]] == ["ready"]
    with pytest.raises(LateError, match="waits for m2/host-0"):
        client.wait_for_placement(0.1)
    assert machines_of(fleet, name) == ["m1", "m2"]
    refusal.unlink()
    client.wait_for_placement(60)
    wait_for(lambda: machines_of(fleet, name) == ["m2"])
    said = [event["message"] for event in client.events(model=name) if event["kind"] == "placement"]
    assert f"{name}: moves from m1 to m2" in said
    assert f"{name}: is ready on m2; m1 unloads it" in said
    client.clear_placement()
    wait_for(lambda: machines_of(fleet, name) == list(NAMES))


def test_clients_are_told_the_new_machines_once_they_are_ready(
    fleet: Fleet, client: Client, name: str, model: Callable[..., Path]
) -> None:
    def hosts() -> list[str]:
        return [endpoint["machine"] for endpoint in client.endpoints(name)["endpoints"]]

    client.apply_placement(placement(**{name: "m1 m2"}), handover_s=0)
    client.deploy(name, model(1), wait=True, timeout=120)
    assert hosts() == ["m1", "m2"]
    (endpoint, _) = client.endpoints(name)["endpoints"]
    assert (endpoint["host"], endpoint["versions"], set(endpoint["addresses"])) == ("m1/host-0", [1], {"grpc", "rest"})
    refusal = fleet[1]["m3"].state_dir / "hosts" / "host-0" / "refuse"
    refusal.write_text("no memory")
    client.apply_placement(placement(**{name: "m2 m3"}), handover_s=3600)
    wait_for(lambda: "no memory" in (client.placement()["models"][0]["waits_for"] or ""))
    assert hosts() == ["m1", "m2"]
    refusal.unlink()
    wait_for(lambda: hosts() == ["m2", "m3"])
    # The first machine serves those that do not know it yet.
    assert machines_of(fleet, name) == list(NAMES)
    assert client.placement()["models"][0]["leaving"] == ["m1"]


def test_model_that_is_placed_on_an_unknown_machine_stays_where_it_is(
    fleet: Fleet, client: Client, name: str, model: Callable[..., Path]
) -> None:
    client.deploy(name, model(1), wait=True, timeout=120)
    client.apply_placement(placement(**{name: "m1"}), handover_s=0)
    client.wait_for_placement(60)
    found = client.apply_placement(placement(**{name: "m9"}), handover_s=0)
    assert "machines that have never reported: m9; nothing moves away for them" in found["remarks"]
    wait_for(lambda: client.placement()["models"][0]["waits_for"] == "m9: has no host that is ready")
    assert machines_of(fleet, name) == ["m1"]


def test_bad_placements_change_nothing(client: Client) -> None:
    with pytest.raises(InvalidError, match="expected 'placement/1'"):
        client.apply_placement({"schema": "plan/1"})
    assert client.placement()["applied"] is None


def test_next_proxy_has_the_placement(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "1")
    with ProxyThread(tmp_path, "--engine", "agents") as proxy, proxy.client() as client:
        client.deploy("ranking", folder)
        client.apply_placement(placement(ranking="m1 m2"))
    with ProxyThread(tmp_path, "--engine", "agents") as proxy, proxy.client() as client:
        assert client.placement()["models"][0]["machines"] == ["m1", "m2"]
        with Machine.of(proxy, "m3") as other:
            wait_for(lambda: other.desired().get("schema") == 1 and "waiting" not in other.desired())
            assert other.versions("ranking") == []


def test_cleared_placement_does_not_come_back_from_an_old_file(tmp_path: Path) -> None:
    """As after a takeover: the new leader's file is of the last time that it led."""
    folder = write_model(tmp_path / "1")
    with ProxyThread(tmp_path, "--engine", "agents") as proxy, proxy.client() as client:
        client.deploy("ranking", folder)
        client.apply_placement(placement(ranking="m1"))
        desired = proxy.state_dir / "desired.json"
        wait_for(lambda: desired.exists() and b'"placement"' in desired.read_bytes())
        old = desired.read_bytes()
        client.clear_placement()
    desired.write_bytes(old)
    with ProxyThread(tmp_path, "--engine", "agents") as proxy, proxy.client() as client:
        assert client.placement()["applied"] is None


def test_proxy_without_agents_has_no_placement(tmp_path: Path) -> None:
    with (
        ProxyThread(tmp_path) as proxy,
        proxy.client() as client,
        pytest.raises(PreconditionError, match="expected --engine agents"),
    ):
        client.apply_placement(placement(a="m1"))
