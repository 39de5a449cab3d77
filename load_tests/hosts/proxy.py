# SPDX-License-Identifier: Apache-2.0
"""Run `serving-proxy serve` with one host, and record the host's reports with their times."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from load_tests._programs import ROOT, ProgramError, find_go_program
from serving_proxy import Client

__all__ = ["Proxy", "Seen", "step_back"]

_START_S = 120.0
_LOOK_S = 0.02


@dataclass(frozen=True)
class Seen:
    """Describe one state of a host: `at` is the Unix time at which the host wrote it, `states` by model and version."""

    at: float
    generation: int
    states: dict[tuple[str, int], str]


def step_back() -> None:
    """Give the calling thread the lowest priority: in production, this work happens on other machines."""
    os.setpriority(os.PRIO_PROCESS, 0, 19)


class Proxy:
    """Run a proxy and the host that it starts.

    Attributes
    ----------
    client : Client
    pid : int
        Process id of the host.
    address : str
        Address of the host's gRPC server.
    """

    client: Client
    pid: int
    address: str

    def __init__(
        self, kind: str, folder: Path, maintenance_cpus: str | None = None, options: Sequence[str] = ()
    ) -> None:
        self._state = folder / "state"
        self._log = folder / "log"
        self._kind = kind
        self._options = [*options, *(["--maintenance-cpus", maintenance_cpus] if maintenance_cpus else [])]
        self._ended = threading.Event()
        self._seen: list[Seen] = []
        self._changed = threading.Condition()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Proxy:
        self._state.mkdir(parents=True)
        ports = ["--grpc-port", "0", "--rest-port", "0", "--admin-port", "0"]
        environment = dict(os.environ)
        if self._kind == "go":
            environment["RECPROCESSOR_HOST"] = str(find_go_program("recprocessor-host"))
        command = [sys.executable, "-m", "serving_proxy", "serve", *self._options]
        command += ["--state-dir", str(self._state), "--host", self._kind]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*command, *ports], stdout=log, stderr=log, cwd=ROOT, env=environment)
        try:
            self.client = Client(self._wait(lambda: str(json.loads((self._state / "proxy.lock").read_text())["admin"])))
            host = self._wait(self._host)
        except BaseException:
            self._stop()
            raise
        self.pid, self.address = host["pid"], host["endpoints"]["grpc"]
        self._actual = self._state / "hosts" / host["name"] / "actual.json"
        self._watcher.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._watcher.join()
        self.client.close()
        self._stop()

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _host(self) -> dict[str, Any] | None:
        for host in self.client.status()["hosts"]:
            if host["alive"] and "grpc" in host["endpoints"]:
                return dict(host)
        return None

    def _wait(self, found: Callable[[], Any]) -> Any:
        until = time.monotonic() + _START_S
        while time.monotonic() < until and self._process.poll() is None:
            with contextlib.suppress(OSError, ValueError, KeyError):
                if value := found():
                    return value
            time.sleep(0.05)
        raise ProgramError("serving-proxy", self._process.poll() or 0, self._log.read_text())

    def _watch(self) -> None:
        step_back()
        last = b""
        while not self._ended.wait(_LOOK_S):
            # The file is replaced as a whole, so its time is that of its content. Two contents may have the same time:
            # the kernel's clock of files advances some hundred times a second.
            with contextlib.suppress(FileNotFoundError), self._actual.open("rb") as file:
                written, content = os.fstat(file.fileno()).st_mtime_ns, file.read()
                if content == last:
                    continue
                last = content
                actual = json.loads(content)
                states = {
                    (name, int(number)): str(version["state"])
                    for name, model in actual["models"].items()
                    for number, version in model["versions"].items()
                }
                with self._changed:
                    self._seen.append(Seen(written / 1e9, actual["generation"], states))
                    self._changed.notify_all()

    def first(self, since: float, fits: Callable[[Seen], bool], timeout: float = 120.0) -> float:
        """Wait for a state of the host, and return its time (Unix time; `since` if the state already existed).

        Raises
        ------
        ProgramError
            If the state was not reached.
        """
        until = time.monotonic() + timeout
        with self._changed:
            while True:
                before = [seen for seen in self._seen if seen.at < since][-1:]
                for seen in [*before, *(seen for seen in self._seen if seen.at >= since)]:
                    if fits(seen):
                        return max(seen.at, since)
                if not self._changed.wait(until - time.monotonic()):
                    raise ProgramError("host", 0, f"{self._seen[-1:]} after {timeout:g} s, expected another state")

    def generation(self) -> int:
        """Return the generation that the host must reach."""
        return int(json.loads((self._state / "desired.json").read_bytes())["generation"])

    def wait_until_applied(self, since: float) -> float:
        """Wait until the host has applied the current desired state, and return the time at which it did."""
        wanted = self.generation()
        return self.first(since, lambda seen: seen.generation >= wanted)
