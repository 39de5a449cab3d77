# SPDX-License-Identifier: Apache-2.0
"""Agents of several machines and a proxy: real sockets and files, and hosts that load nothing."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from helpers.proxies.agent_runs import Machine
from helpers.proxies.proxy_runs import ProxyThread, wait_for, write_model
from helpers.system.certificates import make_authority, make_certificate
from load_tests.ports import free_port
from serving_proxy.agent.settings import AgentSettings
from serving_proxy.errors import InvalidError, PreconditionError
from serving_proxy.fleet.machines import SILENT_S


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ProxyThread, list[Machine]]]:
    """A proxy and two machines."""
    with (
        ProxyThread(tmp_path_factory.mktemp("fleet"), "--engine", "agents") as proxy,
        Machine.of(proxy, "m1") as first,
        Machine.of(proxy, "m2") as second,
        proxy.client() as client,
    ):
        wait_for(lambda: len([host for host in client.status()["hosts"] if host["alive"]]) == 2)
        yield proxy, [first, second]


def test_versions_reach_all_machines_with_one_generation(
    fleet: tuple[ProxyThread, list[Machine]], name: str, model: Callable[..., Path]
) -> None:
    proxy, machines = fleet
    with proxy.client() as client:
        client.deploy(name, model(1), wait=True, timeout=120)
        found = client.deploy(name, model(2), wait=True, timeout=120, traffic=10)["model"]
        second = next(version for version in found["versions"] if version["version"] == 2)
        assert set(second["hosts"]) == {"m1/host-0", "m2/host-0"}
        client.promote(name, 2)
        wait_for(lambda: all(machine.desired()["models"][name]["baseline"] == 2 for machine in machines))
        wait_for(
            lambda: {client.status()["generation"]} == {machine.desired()["generation"] for machine in machines},
            what="one generation everywhere",
        )
        wait_for(lambda: [machine["state"] for machine in client.status()["machines"]] == ["current", "current"])
        client.rollback(name)
        wait_for(lambda: all(machine.desired()["models"][name]["baseline"] == 1 for machine in machines))


def test_machine_that_was_away_comes_back_to_the_newest_state(
    fleet: tuple[ProxyThread, list[Machine]], name: str, model: Callable[..., Path]
) -> None:
    proxy, (first, second) = fleet
    with proxy.client() as client:
        client.deploy(name, model(1), wait=True, timeout=120)
        client.deploy(name, model(2), wait=True, timeout=120)
        client.promote(name, 2)
        wait_for(lambda: second.desired()["models"][name]["baseline"] == 2)

        def is_applied() -> bool:
            seen = client.status()
            return {host["generation"] for host in seen["hosts"]} == {seen["generation"]}

        wait_for(is_applied)
        second.stop()
        wait_for(lambda: [m["state"] for m in client.status()["machines"]] == ["current", "away"])
        # Its host serves without it, and clients must not lose it.
        here, away = wait_for(lambda: client.endpoints(name)["endpoints"])
        assert (here["machine"], here["away_for"], away["machine"]) == ("m1", None, "m2")
        assert away["away_for"] > SILENT_S / 2
        wait_for(lambda: any("m2: away" in event["message"] for event in client.events()))
        # The old baseline is ready there, too, but the host has not heard of the rollback.
        client.rollback(name)
        wait_for(lambda: first.desired()["models"][name]["baseline"] == 1)
        assert second.desired()["models"][name]["baseline"] == 2
        assert [found["machine"] for found in client.endpoints(name)["endpoints"]] == ["m1"]
        client.deploy(name, model(3), wait=True, timeout=120)
        client.promote(name, 3)
        wait_for(lambda: first.desired()["models"][name]["baseline"] == 3)
        assert second.desired()["models"][name]["baseline"] == 2
        second.start()
        wait_for(lambda: second.desired()["models"][name]["baseline"] == 3)
        wait_for(lambda: [found["machine"] for found in client.endpoints(name)["endpoints"]] == ["m1", "m2"])


def test_version_that_one_machine_cannot_load_fails(
    fleet: tuple[ProxyThread, list[Machine]], name: str, model: Callable[..., Path]
) -> None:
    proxy, _ = fleet
    with proxy.client() as client:
        folder = model(1)
        (folder / "refuse").write_text("out of memory")
        with pytest.raises(PreconditionError, match=r"m[12]/host-0: out of memory"):
            client.deploy(name, folder, wait=True, timeout=120)
        # The command is repeated: the version is still there, and has still failed.
        with pytest.raises(PreconditionError, match=r"m[12]/host-0: out of memory"):
            client.deploy(name, folder, wait=True, timeout=120)


def test_proxy_that_is_restarted_changes_nothing(tmp_path: Path) -> None:
    # The agent finds the proxy at this port again, which nobody may take meanwhile.
    port = str(free_port())
    proxy = ProxyThread(tmp_path, "--engine", "agents", "--admin-port", port)
    with proxy, proxy.client() as client:
        machine = Machine.of(proxy, "m")
        machine.__enter__()
        client.deploy("ranking", write_model(tmp_path / "1"), wait=True, timeout=120)
        wait_for(lambda: [m["state"] for m in client.status()["machines"]] == ["current"])
        before = machine.desired()
    try:
        assert machine.desired() == before
        with ProxyThread(tmp_path, "--engine", "agents", "--admin-port", port) as again, again.client() as client:
            wait_for(lambda: [m["state"] for m in client.status()["machines"]] == ["current"])
            assert machine.desired() == before
            assert [version["state"] for version in client.versions("ranking")["versions"]] == ["ready"]
    finally:
        machine.__exit__(None, None, None)


def test_proxy_that_has_lost_everything_continues_after_what_machines_follow(tmp_path: Path) -> None:
    with ProxyThread(tmp_path / "a", "--engine", "agents") as proxy, proxy.client() as client:
        machine = Machine.of(proxy, "m").start()
        client.deploy("ranking", write_model(tmp_path / "1"))
        generation = wait_for(lambda: machine.versions("ranking") and machine.desired()["generation"])
        machine.stop()
    with ProxyThread(tmp_path / "b", "--engine", "agents") as other, other.client() as client:
        machine.servers, machine.token_file = (other.url,), other.state_dir / "admin.token"
        machine.start()
        client.deploy("ranking", write_model(tmp_path / "2"))
        wait_for(lambda: machine.versions("ranking") == [2])
        assert machine.desired()["generation"] > generation
        machine.stop()


@pytest.mark.parametrize(
    ("address", "is_right"),
    [("10.0.0.1", True), ("fe80::1%eth0", True), ("h1.example", True), ("10.0.0.1:8500", False), ("a b", False)],
)
def test_an_address_has_no_port(tmp_path: Path, address: str, is_right: bool) -> None:
    settings = AgentSettings(server=("http://localhost:8502",), state_dir=tmp_path, machine="m", address=address)
    if is_right:
        settings.check()
    else:
        with pytest.raises(InvalidError, match=f"--address {address}: expected a name or an IP address without a port"):
            settings.check()


def test_wrong_token_and_wrong_authority_are_refused(tmp_path: Path) -> None:
    right, wrong = make_authority(tmp_path, "right"), make_authority(tmp_path, "wrong")
    certificate = make_certificate(tmp_path, "proxy", right)
    token = tmp_path / "agents.token"
    token.write_text("a-token-of-agents\n")
    options = ["--admin-tls-cert", str(certificate.chain), "--admin-tls-key", str(certificate.key)]
    options += ["--engine", "agents", "--agent-token-file", str(token)]
    with ProxyThread(tmp_path / "proxy", *options) as proxy:
        other = tmp_path / "other.token"
        other.write_text("another-token-of-agents\n")
        made = [
            Machine(tmp_path, "good", proxy.url, token_file=token, ca_file=right.chain),
            Machine(tmp_path, "token", proxy.url, token_file=other, ca_file=right.chain),
            Machine(tmp_path, "authority", proxy.url, token_file=token, ca_file=wrong.chain),
        ]
        for machine in made:
            machine.start()
        context = ssl.create_default_context(cafile=str(right.chain))
        trusted = httpx.Client(base_url=proxy.url, verify=context, trust_env=False, timeout=60)
        read = lambda: trusted.get("/v1/status", headers=proxy.headers()).json()["machines"]  # noqa: E731
        wait_for(lambda: [machine["name"] for machine in read()] == ["good"])
        # The token of agents permits nothing else.
        assert trusted.get("/v1/status", headers={"Authorization": "Bearer a-token-of-agents"}).status_code == 401
        for machine in made:
            machine.stop()
        assert [machine["name"] for machine in read()] == ["good"]
