# SPDX-License-Identifier: Apache-2.0
"""A machine of a fleet: an agent and a Go host as processes."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from load_tests._releases import TODAY, Release
from load_tests.fleet.network import Network
from load_tests.fleet.setup import FleetProxy, wait_until

__all__ = ["FleetMachine"]


class FleetMachine:
    """An agent and a Go host, which follow one state directory.

    Parameters
    ----------
    folder : Path
        The state directory is a folder in it.
    name : str
    proxy : FleetProxy
    network : Network, optional
        Where both run; by default the network of this process.
    others : sequence of FleetProxy
        Further proxies, of which another one may lead.
    release : Release

    Attributes
    ----------
    release : Release
        Of what is started next.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        proxy: FleetProxy,
        network: Network | None = None,
        others: Sequence[FleetProxy] = (),
        release: Release = TODAY,
    ) -> None:
        self.name = name
        self.release = release
        self.state_dir = folder / name
        self._log = folder / f"{name}.log"
        self._enter = [] if network is None else network.enter
        self._address = "127.0.0.1" if network is None else network.inside
        urls = [proxy.url, *(other.url for other in others)]
        servers = urls if network is None else [url.replace("127.0.0.1", network.outside) for url in urls]
        self._agent = ["agent", "--machine", name, *(part for server in servers for part in ("--server", server))]
        self._agent += ["--state-dir", str(self.state_dir), "--token-file", str(proxy.token_file)]
        self._agent += ["--ca-file", str(proxy.ca_file)]
        self._ports = {"grpc": 0, "rest": 0}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the agent, and then the host at the ports that it had before; wait until it is ready."""
        self.start_agent()
        wait_until((self.state_dir / "desired.json").exists)
        self.start_host()
        self.wait_ready()

    @property
    def address(self) -> str:
        """Return the address of the host's gRPC server."""
        return str(self._actual()["endpoints"]["grpc"])

    @property
    def rest_address(self) -> str:
        """Return the address of the host's REST server."""
        return str(self._actual()["endpoints"]["rest"])

    def end(self, number: signal.Signals) -> None:
        """Send both processes a signal, and wait until they have ended."""
        for process in self.processes.values():
            process.send_signal(number)
        for process in self.processes.values():
            process.wait(60)
        self.processes = {}

    def start_agent(self) -> None:
        """Start the agent alone."""
        self._start("agent", self.release.command("serving_proxy", *self._agent))

    def kill_agent(self) -> None:
        """Kill the agent; the host goes on."""
        process = self.processes.pop("agent")
        process.kill()
        process.wait()

    def start_host(self, **environment: str) -> None:
        """Start the host alone, without waiting for it; `environment` are variables for it."""
        host = [str(self.release.host), "--state-dir", str(self.state_dir), "--host-id", "host-0"]
        host += ["--address", self._address]
        host += [part for kind, port in self._ports.items() for part in (f"--{kind}-port", str(port))]
        self._start("host", host, environment)

    def wait_host_end(self) -> None:
        """Wait until the host has ended by itself."""
        self.processes.pop("host").wait(60)

    def wait_ready(self) -> None:
        """Wait until the host is ready."""
        pid = self.processes["host"].pid
        wait_until(lambda: self._is_ready(pid))
        endpoints = self._actual()["endpoints"]
        self._ports = {kind: int(endpoints[kind].rpartition(":")[2]) for kind in self._ports}

    def _start(self, name: str, command: list[str], environment: Mapping[str, str] | None = None) -> None:
        variables = {**self.release.environment, **(environment or {})}
        with self._log.open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self._enter, *command], stdout=log, stderr=log, cwd=self.release.root, env=variables
            )

    def _is_ready(self, pid: int) -> bool:
        actual = self._actual()
        return (
            actual.get("pid") == pid
            and actual.get("state") == "ready"
            and {"grpc", "rest"} <= actual["endpoints"].keys()
        )

    def _actual(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.state_dir / "hosts" / "host-0" / "actual.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return found
