# SPDX-License-Identifier: Apache-2.0
"""Set up a scenario: a proxy with a host, a deployed model, and requests for it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from load_tests.bench_serving import default_config
from load_tests.hosts.memory import memory_of
from load_tests.hosts.proxy import Proxy
from load_tests.hosts.throughput import write_json_requests
from load_tests.request_files import ensure_requests, name_model, read_requests, write_requests
from load_tests.scenarios.generators import Endpoint

__all__ = ["MODEL", "VARIANT", "Stage", "open_stage"]

MODEL = "ranking"
VARIANT = "ranking-variant"
_DEPLOY_S = 300.0


@dataclass(frozen=True)
class Stage:
    """Provide a running proxy.

    Attributes
    ----------
    proxy : Proxy
    endpoint : Endpoint
        Endpoint of the model.
    variant_requests : Path
        Requests for the variant, over gRPC.
    """

    proxy: Proxy
    endpoint: Endpoint
    variant_requests: Path
    model: Path

    def deploy(self, version: int = 1, name: str = MODEL, sessions: int | None = None, **settings: Any) -> None:
        """Deploy a version of a model, and wait until it is ready."""
        config = default_config(sessions or len(os.sched_getaffinity(0)))
        self.proxy.client.deploy(
            name, self.model, version=version, config=config, wait=True, timeout=_DEPLOY_S, **settings
        )

    def resources(self) -> dict[str, int]:
        """Return the resources of the host: bytes of memory, threads, connections of clients, other open files."""
        process = psutil.Process(self.proxy.pid)
        ports = {int(address.rpartition(":")[2]) for address in (self.endpoint.rest, self.endpoint.grpc)}
        # A connection that its client has closed (CLOSE_WAIT) counts as a file: the host has to close it.
        clients = [
            connection
            for connection in process.net_connections("tcp")
            if connection.status == psutil.CONN_ESTABLISHED and connection.laddr.port in ports
        ]
        return {
            **memory_of(self.proxy.pid),
            "threads": process.num_threads(),
            "connections": len(clients),
            "files": process.num_fds() - len(clients),
        }

    def alive(self) -> bool:
        """Return whether the host's process is still the same."""
        return any(host["alive"] and host["pid"] == self.proxy.pid for host in self.proxy.client.status()["hosts"])


@contextlib.contextmanager
def open_stage(host: str, workload: str, rows: int, model: Path, folder: Path, cache: Path) -> Iterator[Stage]:
    """Start a proxy with one host, and write requests: over gRPC with `rows` rows, over REST with one."""
    anonymous = read_requests(ensure_requests(cache / "requests", workload, rows, "tfserving"))
    named = {}
    for name in (MODEL, VARIANT):
        named[name] = folder / f"{name}.bin"
        write_requests(named[name], [name_model(request, name) for request in anonymous])
    plain = write_json_requests(folder / "requests.json.bin", workload, 256)
    with Proxy(host, folder) as proxy:
        (here,) = (host for host in proxy.client.status()["hosts"] if host["pid"] == proxy.pid)
        path = f"/v1/models/{MODEL}:predict"
        endpoint = Endpoint(here["endpoints"]["rest"], proxy.address, path, plain, named[MODEL])
        yield Stage(proxy, endpoint, named[VARIANT], model.resolve())
