# SPDX-License-Identifier: Apache-2.0
"""Run machines: an agent with a state directory of its own, and a scripted host that follows it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from helpers.proxies.proxy_runs import ROOT, Proxy, environment_of_checkout, wait_for
from serving_proxy.agent.process import run
from serving_proxy.agent.settings import AgentSettings

_SCRIPTED = ROOT / "tests" / "helpers" / "proxies" / "scripted_host.py"


class Machine:
    """A machine with an agent, which runs in a thread of this process, and optionally a scripted host."""

    def __init__(self, folder: Path, name: str, *servers: str, token_file: Path | None = None, **options: Any) -> None:
        self.name = name
        self.state_dir = folder / name
        self.servers = servers
        self.token_file = token_file
        self.options = options
        self.host: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @classmethod
    def of(cls, proxy: Proxy, name: str, **options: Any) -> Machine:
        """Make a machine that follows a proxy."""
        return cls(proxy.folder, name, proxy.url, token_file=proxy.state_dir / "admin.token", **options)

    def settings(self) -> AgentSettings:
        """Return the settings of the agent."""
        given = {"server": self.servers, "state_dir": self.state_dir, "machine": self.name, **self.options}
        return AgentSettings(**given, token_file=self.token_file)

    def start(self) -> Machine:
        """Start the agent."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        wait_for(lambda: self._error or (self.state_dir / "desired.json").exists(), 60, "an agent's desired.json")
        if self._error is not None:
            raise self._error
        return self

    def start_host(self) -> None:
        """Start a scripted host."""
        command = [sys.executable, str(_SCRIPTED), "--state-dir", str(self.state_dir), "--host-id", "host-0"]
        self.host = subprocess.Popen(command, env=environment_of_checkout())

    def start_real_host(self) -> None:
        """Start the Python host."""
        command = [
            sys.executable,
            "-m",
            "serving_proxy.host",
            "--state-dir",
            str(self.state_dir),
            "--host-id",
            "host-0",
        ]
        command += ["--address", "127.0.0.1", "--grpc-port", "0", "--rest-port", "0"]
        self.host = subprocess.Popen(command, env=environment_of_checkout(), cwd=ROOT)

    def stop(self) -> None:
        """Stop the agent; the host goes on."""
        if self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(60)
            assert not self._thread.is_alive()
        self._thread = None
        if self._error is not None:
            raise self._error

    def desired(self) -> dict[str, Any]:
        """Return what its hosts are to serve."""
        found: dict[str, Any] = json.loads((self.state_dir / "desired.json").read_bytes())
        return found

    def versions(self, model: str) -> list[int]:
        """Return the versions of a model that its hosts are to serve."""
        return sorted(map(int, self.desired()["models"].get(model, {}).get("versions", {})))

    def _run(self) -> None:
        async def main() -> None:
            self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
            await run(self.settings(), self._ended)

        try:
            asyncio.run(main())
        except BaseException as error:
            self._error = error

    def __enter__(self) -> Machine:
        self.start()
        self.start_host()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.stop()
        finally:
            if self.host is not None:
                self.host.send_signal(signal.SIGKILL)
                self.host.wait()
