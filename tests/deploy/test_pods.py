# SPDX-License-Identifier: Apache-2.0
"""Run the containers of the committed manifests as processes: their command lines, in their order, and their probes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers.deploy.manifests import container, move, plain
from helpers.hosts.served_hosts import program
from helpers.proxies.proxy_runs import environment_of_checkout, wait_for
from helpers.system.certificates import make_authority, make_certificate
from load_tests.ports import free_port

MANIFESTS = plain()
Start = Callable[..., subprocess.Popen[bytes]]


def with_values(arguments: list[str], values: dict[str, str]) -> list[str]:
    """Return arguments with other values of some options."""
    changed = list(arguments)
    for option, value in values.items():
        changed[changed.index(option) + 1] = value
    return changed


def ask(name: str, kind: str, port: int) -> int:
    """Return the status that a probe of a container gets, or 0 if it gets none."""
    asked = container(MANIFESTS, name)[f"{kind}Probe"]["httpGet"]
    try:
        url = f"{asked.get('scheme', 'HTTP').lower()}://127.0.0.1:{port}{asked['path']}"
        # As the kubelet does, which checks no certificate.
        return httpx.get(url, verify=False, timeout=10).status_code
    except httpx.TransportError:
        return 0


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts a process; all are ended after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*command: object, **environment: str) -> subprocess.Popen[bytes]:
        words = [str(word) for word in command]
        started.append(subprocess.Popen(words, env=environment_of_checkout() | environment))
        return started[-1]

    yield begin
    for process in reversed(started):
        process.send_signal(signal.SIGTERM)
    codes = [process.wait(60) for process in reversed(started)]
    assert set(codes) == {0}


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """What volumes of the manifests are here, with the contents of the secrets."""
    authority = make_authority(tmp_path, "ca")
    certificate = make_certificate(tmp_path, "proxy", authority)
    found = {
        "/var/lib/recprocessor": tmp_path / "host",
        "/var/lib/recprocessor-proxy": tmp_path / "proxy",
        "/etc/recprocessor/tls": tmp_path / "tls",
        "/etc/recprocessor/tokens": tmp_path / "tokens",
        "/etc/recprocessor/agent": tmp_path / "agent",
        "/models": tmp_path / "models",
        "/shared": tmp_path / "shared",
    }
    for folder in found.values():
        folder.mkdir()
    (tmp_path / "tls" / "tls.crt").symlink_to(certificate.chain)
    (tmp_path / "tls" / "tls.key").symlink_to(certificate.key)
    (tmp_path / "tls" / "ca.crt").symlink_to(authority.chain)
    # The kubelet makes links, and files that the group may read.
    (tmp_path / "agent" / "ca.crt").symlink_to(authority.chain)
    for name in ("admin-token", "agent-token"):
        (tmp_path / "tokens" / name).write_text(f"{name}-of-this-test")
        (tmp_path / "tokens" / name).chmod(0o440)
    (tmp_path / "agent" / "agent-token").symlink_to(tmp_path / "tokens" / "agent-token")
    return found


@pytest.mark.slow
def test_a_host_is_ready_when_a_proxy_leads(places: dict[str, Path], start: Start) -> None:
    admin, health = (free_port(), free_port()), free_port()
    proxy_command = [sys.executable, "-m", "serving_proxy"]

    def arguments(name: str, **values: Any) -> list[str]:
        given = {f"--{option.replace('_', '-')}": str(value) for option, value in values.items()}
        return with_values(move(container(MANIFESTS, name)["args"], places), given)

    # Each proxy has a volume of its own, and a port instead of an address of its own.
    def start_proxy(number: int) -> None:
        state = places["/var/lib/recprocessor-proxy"] / str(number)
        given = arguments("proxy", state_dir=state, admin_port=admin[number])
        # There is no API server here; tests/serving_proxy/leadership/test_kubernetes.py has one.
        lease = given.index("--lease")
        start(*proxy_command, "serve", *given[:lease], *given[lease + 2 :])

    agent = [word for word in arguments("agent", machine="host-0") if not word.startswith("https://")]
    agent = [word for word in agent if word != "--server"]
    servers = [word for port in admin for word in ("--server", f"https://127.0.0.1:{port}")]
    start(*proxy_command, "agent", *agent, *servers)
    startup = move(container(MANIFESTS, "agent")["startupProbe"]["exec"]["command"], places)
    wait_for(lambda: subprocess.run(startup, check=False).returncode == 0, 30, "the startup probe of the agent")

    start(*program("go"), *arguments("host", grpc_port=0, rest_port=0, health_port=health))
    wait_for(lambda: ask("host", "startup", health) == 200, 30, "the startup probe of the host")
    assert ask("host", "readiness", health) == 503
    assert ask("host", "liveness", health) == 200

    start_proxy(0)
    wait_for(lambda: ask("host", "readiness", health) == 200, 30, "the readiness probe of the host")
    assert ask("proxy", "startup", admin[0]) == ask("proxy", "readiness", admin[0]) == 200
    start_proxy(1)
    wait_for(lambda: ask("proxy", "readiness", admin[1]) == 200, 30, "the readiness probe of the standby")

    # `kubectl exec` finds server, token and certificates in the container's environment.
    variables = {each["name"]: each.get("value", "") for each in container(MANIFESTS, "proxy")["env"]}
    assert variables["SERVING_PROXY_SERVER"] == "https://$(POD_NAME).recprocessor-proxies.recprocessor.svc:8502"
    files = ("SERVING_PROXY_TOKEN_FILE", "SERVING_PROXY_CA_FILE")
    environment = dict(zip(files, move([variables[name] for name in files], places), strict=True))
    environment["SERVING_PROXY_SERVER"] = f"https://127.0.0.1:{admin[0]}"
    shown = subprocess.run(
        [*proxy_command, "status", "--json"],
        env=os.environ | environment_of_checkout() | environment,
        capture_output=True,
        check=True,
    ).stdout
    assert b'"host-0"' in shown
