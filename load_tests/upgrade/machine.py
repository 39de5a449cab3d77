# SPDX-License-Identifier: Apache-2.0
"""`machine`: a proxy and its two hosts on one machine, which are replaced one by one."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from load_tests._releases import TODAY, Release
from load_tests.faults.service import Service
from load_tests.upgrade.clients import MODEL, Clients, Step

__all__ = ["upgrade_machine"]

_HOSTS = ("host-0", "host-1")
_READY_S = 300.0
_SHARE = 10.0


def upgrade_machine(folder: Path, models: Path, earlier: Release, seconds: float) -> list[Step]:
    """Replace proxy and hosts by those of today, then go back; parameters as for `upgrade_fleet`."""
    options = ("--host-processes", str(len(_HOSTS)), "--keep-hosts")
    with Service("go", folder, options=options, release=earlier) as service, ExitStack() as stack:
        stack.callback(_stop_hosts, service)
        _wait_hosts(service, "ready")
        # Hosts of today load what the earlier release has optimized.
        _deploy(service, models / "1", optimize=True)
        _deploy(service, models / "2", traffic=_SHARE)
        grpc, rest = [f"127.0.0.1:{service.grpc}"], [f"127.0.0.1:{service.rest}"]
        with Clients(grpc, rest, seconds) as clients:
            clients.note(f"all programs are of {earlier.name}")
            for number, release in enumerate((TODAY, earlier), 3):
                service.kill_proxy()
                service.release = release
                service.start()
                _deploy(service, models / str(number), traffic=_SHARE)
                clients.note(f"proxy of {release.name}")
                for host in _HOSTS:
                    _restart_host(service, host)
                    clients.note(f"{host} of {release.name}")
                with service.client() as client:
                    client.promote(MODEL, number)
                clients.note("promotion")
            return clients.steps


def _restart_host(service: Service, name: str) -> None:
    with service.client() as client:
        client.drain(name)
        _wait_hosts(service, "stopped", name)
        client.drain(name, drain=False)
        _wait_hosts(service, "ready", name)


def _stop_hosts(service: Service) -> None:
    with service.client() as client:
        client.drain()
    _wait_hosts(service, "stopped")


def _wait_hosts(service: Service, state: str, *names: str) -> None:
    with service.client() as client:

        def found() -> bool:
            hosts = {host["name"]: host["state"] for host in client.status()["hosts"]}
            return all(hosts.get(name) == state for name in names or _HOSTS)

        service.wait(found, f"{', '.join(names or _HOSTS)} that is {state}")


def _deploy(service: Service, path: Path, **options: Any) -> None:
    with service.client() as client:
        client.deploy(MODEL, path, wait=True, timeout=_READY_S, **options)
