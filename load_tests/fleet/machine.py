# SPDX-License-Identifier: Apache-2.0
"""A machine of a fleet: an agent and a Go host as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from load_tests._programs import ROOT, find_go_program
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
    """

    def __init__(self, folder: Path, name: str, proxy: FleetProxy, network: Network | None = None) -> None:
        self.name = name
        self.state_dir = folder / name
        self._log = folder / f"{name}.log"
        self._enter = [] if network is None else network.enter
        self._address = "127.0.0.1" if network is None else network.inside
        server = proxy.url if network is None else proxy.url.replace("127.0.0.1", network.outside)
        self._agent = [sys.executable, "-m", "serving_proxy", "agent", "--server", server, "--machine", name]
        self._agent += ["--state-dir", str(self.state_dir), "--token-file", str(proxy.token_file)]
        self._agent += ["--ca-file", str(proxy.ca_file)]
        self._port = 0
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the agent, and then the host at the port that it had before; wait until it is ready."""
        self.start_agent()
        wait_until((self.state_dir / "desired.json").exists)
        self.start_host()
        self.wait_ready()

    @property
    def address(self) -> str:
        """Return the address of the host's gRPC server."""
        return str(self._actual()["endpoints"]["grpc"])

    def end(self, number: signal.Signals) -> None:
        """Send both processes a signal, and wait until they have ended."""
        for process in self.processes.values():
            process.send_signal(number)
        for process in self.processes.values():
            process.wait(60)
        self.processes = {}

    def start_agent(self) -> None:
        """Start the agent alone."""
        self._start("agent", self._agent)

    def kill_agent(self) -> None:
        """Kill the agent; the host goes on."""
        process = self.processes.pop("agent")
        process.kill()
        process.wait()

    def start_host(self, **environment: str) -> None:
        """Start the host alone, without waiting for it; `environment` are variables for it."""
        host = [str(find_go_program("recprocessor-host")), "--state-dir", str(self.state_dir), "--host-id", "host-0"]
        host += ["--address", self._address]
        self._start("host", [*host, "--grpc-port", str(self._port), "--rest-port", "0"], environment)

    def wait_host_end(self) -> None:
        """Wait until the host has ended by itself."""
        self.processes.pop("host").wait(60)

    def wait_ready(self) -> None:
        """Wait until the host is ready."""
        pid = self.processes["host"].pid
        wait_until(lambda: self._is_ready(pid))
        self._port = int(self.address.rpartition(":")[2])

    def _start(self, name: str, command: list[str], environment: Mapping[str, str] | None = None) -> None:
        variables = {**os.environ, **(environment or {})}
        with self._log.open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self._enter, *command], stdout=log, stderr=log, cwd=ROOT, env=variables
            )

    def _is_ready(self, pid: int) -> bool:
        actual = self._actual()
        return actual.get("pid") == pid and actual.get("state") == "ready" and "grpc" in actual["endpoints"]

    def _actual(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.state_dir / "hosts" / "host-0" / "actual.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return found
