# SPDX-License-Identifier: Apache-2.0
"""Start host programs for tests: a state directory, a process, and its addresses."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from helpers.system.go_programs import go_program

ROOT = Path(__file__).resolve().parents[3]
KINDS = ("python", "go")
_START_S = 120.0


def program(kind: str) -> list[str]:
    """Return the program for a kind of host."""
    if kind == "python":
        return [sys.executable, "-m", "serving_proxy.host"]
    return [str(go_program("recprocessor-host"))]


def version(path: Path, **more: Any) -> dict[str, Any]:
    """Return a version's entry in desired.json."""
    return {"path": str(path), **more}


def model(baseline: int, versions: Mapping[int, Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """Return a model's entry in desired.json."""
    return {"baseline": baseline, "versions": {str(number): entry for number, entry in versions.items()}, **more}


class ServedHost:
    """Run one host process.

    Attributes
    ----------
    grpc, rest : str
        For example "127.0.0.1:8500".
    """

    def __init__(
        self,
        kind: str,
        state_dir: Path,
        models: Mapping[str, Any],
        arguments: Sequence[str] = (),
        name: str = "host-0",
        environment: Mapping[str, str] | None = None,
        open_files: int | None = None,
    ) -> None:
        self.kind = kind
        # A shell sets the limit, and becomes the host.
        self._within = [] if open_files is None else ["sh", "-c", f'ulimit -n {open_files}; exec "$0" "$@"']
        self.state_dir = state_dir
        self.name = name
        self.log = state_dir / f"{name}.log"
        self._generation = 0
        self._arguments = list(arguments)
        self._environment = {**os.environ, **(environment or {})}
        self.process: subprocess.Popen[bytes] | None = None
        self.grpc = self.rest = ""
        state_dir.mkdir(parents=True, exist_ok=True)
        self.desire(models)

    def desire(self, models: Mapping[str, Any]) -> int:
        """Replace desired.json; return its generation."""
        self._generation += 1
        text = json.dumps(
            {"schema": 1, "generation": self._generation, "maintenance_cpus": _all_cpus(), "models": models}
        )
        draft = self.state_dir / "desired.json.draft"
        draft.write_text(text, encoding="utf-8")
        draft.rename(self.state_dir / "desired.json")
        return self._generation

    def start(self) -> ServedHost:
        """Start the process and wait until it is ready."""
        command = [*self._within, *self._program(), "--host-id", self.name]
        # An option may be given only once.
        for option in ("--grpc-port", "--rest-port"):
            command += [] if option in self._arguments else [option, "0"]
        command += self._arguments
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=self._environment)
        self.wait_for(lambda state: state["state"] == "ready" and {"grpc", "rest"} <= state["endpoints"].keys())
        endpoints = self.actual()["endpoints"]
        self.grpc, self.rest = endpoints["grpc"], endpoints["rest"]
        if "--tls-cert" not in self._arguments:
            self.wait_for(lambda _: httpx.get(f"http://{self.rest}/readyz", timeout=10).status_code == 200)
        return self

    def _program(self) -> list[str]:
        """Return the program and its state directory."""
        return [*program(self.kind), "--state-dir", str(self.state_dir)]

    @property
    def pid(self) -> int:
        """Return the process id."""
        assert self.process is not None
        return self.process.pid

    def actual(self) -> dict[str, Any]:
        """Return the content of actual.json; empty if it does not exist or is of an earlier process."""
        try:
            state: dict[str, Any] = json.loads((self.state_dir / "hosts" / self.name / "actual.json").read_bytes())
        except FileNotFoundError:
            return {"state": "absent", "endpoints": {}, "models": {}, "generation": -1}
        if state["pid"] != self.pid:
            return {"state": "absent", "endpoints": {}, "models": {}, "generation": -1}
        return state

    def wait_for(self, condition: Any, seconds: float = _START_S) -> None:
        """Wait until actual.json satisfies a condition."""
        assert self.process is not None
        until = time.monotonic() + seconds
        while not condition(self.actual()):
            assert self.process.poll() is None, f"host ended: {self.log.read_text()[-2000:]}"
            assert time.monotonic() < until, f"{self.actual()}\n{self.log.read_text()[-2000:]}"
            time.sleep(0.02)

    def end(self, number: int = signal.SIGTERM, seconds: float = 60.0) -> int:
        """Send a signal and return the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(seconds)


@contextlib.contextmanager
def served(*arguments: Any, **more: Any) -> Iterator[ServedHost]:
    """Serve within a `with` statement; see `ServedHost`."""
    host = ServedHost(*arguments, **more)
    try:
        yield host.start()
    finally:
        if host.process is not None and host.process.poll() is None:
            host.end(signal.SIGKILL)


def _all_cpus() -> str:
    # Without this, all of them have low priority: tests may run on a busy machine.
    return ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0)))
