# SPDX-License-Identifier: Apache-2.0
"""Run `serving-proxy serve` with one host that can be killed, stopped, limited and restarted."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from load_tests._programs import ProgramError
from load_tests._releases import TODAY, Release
from load_tests.ports import free_port
from serving_proxy import Client
from serving_proxy.access.tokens import read_token

__all__ = ["HOST", "Service"]

HOST = "host-0"
_START_S = 120.0
#: Mounts a separate file system over the folder for the state; `$1` is its size, `$2` the folder.
_SMALL_DISK = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@"'


class Service:
    """Run a proxy and the host that it starts; their ports stay the same.

    Parameters
    ----------
    kind : str
        `python` or `go`.
    folder : Path
        Empty folder for state and logs.
    disk_bytes : int, optional
        The state is on a file system of this size, which no other process sees.
    options : sequence of str
        Further options of `serve`.
    release : Release

    Attributes
    ----------
    release : Release
        Of the proxy that is started next, and of the hosts that it starts.
    rest, grpc, admin : int
        Ports on 127.0.0.1.
    """

    def __init__(
        self,
        kind: str,
        folder: Path,
        disk_bytes: int | None = None,
        options: Sequence[str] = (),
        release: Release = TODAY,
    ) -> None:
        self.release = release
        self._kind = kind
        self._folder = folder
        self._disk_bytes = disk_bytes
        self._options = list(options)
        self.grpc, self.rest, self.admin = (free_port() for _ in range(3))
        self._process: subprocess.Popen[bytes] | None = None
        self._state = folder / "state"
        self.log = folder / "proxy.log"

    def __enter__(self) -> Service:
        self._state.mkdir(mode=0o700)
        self.start()
        try:
            self.wait(lambda: self.host_pid() is not None, "a host that is ready")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    @property
    def state(self) -> Path:
        """Return the state directory under the path that this process can use."""
        if self._disk_bytes is None or self._process is None:
            return self._state
        return Path(f"/proc/{self._process.pid}/root{self._state}")

    def start(self) -> None:
        """Start the proxy, and wait until it responds."""
        environment = self.release.environment
        if self._kind == "go":
            environment["RECPROCESSOR_HOST"] = str(self.release.host)
        command = self.release.command("serving_proxy", "serve", "--state-dir", self._state)
        command += ["--host", self._kind, "--admin-port", str(self.admin)]
        command += ["--grpc-port", str(self.grpc), "--rest-port", str(self.rest), *self._options]
        if self._disk_bytes is not None:
            own = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _SMALL_DISK, "sh"]
            command = [*own, str(self._disk_bytes), str(self._state), *command]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.release.root, env=environment)
        self.wait(self._answers, "a proxy that answers")

    def client(self) -> Client:
        """Return a client of the admin port."""
        # Not in the way of the command line: a separate file system is not visible from here.
        token = read_token(self.state / "admin.token")
        return Client(f"http://127.0.0.1:{self.admin}", token=token, timeout=10.0)

    def kill_proxy(self) -> None:
        """Kill the proxy as a crash would; its host continues."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def host_pid(self) -> int | None:
        """Return the id of the host's process, as soon as the host is ready."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            actual = json.loads((self.state / "hosts" / HOST / "actual.json").read_bytes())
            if actual["state"] == "ready" and "rest" in actual["endpoints"]:
                os.kill(actual["pid"], 0)
                return int(actual["pid"])
        return None

    def any_host_pid(self) -> int | None:
        """Return the id of the host's process, ready or not."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            pid = int(json.loads((self.state / "hosts" / HOST / "actual.json").read_bytes())["pid"])
            os.kill(pid, 0)
            return pid
        return None

    def versions(self, model: str) -> dict[int, dict[str, Any]]:
        """Return the host's report on a model's versions."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            actual = json.loads((self.state / "hosts" / HOST / "actual.json").read_bytes())
            return {int(number): version for number, version in actual["models"][model]["versions"].items()}
        return {}

    def wait(self, found: Callable[[], Any], what: str, seconds: float = _START_S) -> Any:
        """Call a function until its result is true, and return the result.

        Raises
        ------
        ProgramError
            If this took too long, or the proxy ended.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if value := found():
                return value
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(0.05)
        text = self.log.read_text()[-3000:] if self.log.exists() else ""
        raise ProgramError("serving-proxy", 0, f"no {what} after {seconds:g} s; end of its log:\n{text}")

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.admin), timeout=1):
            return True
        return False

    def _end(self) -> None:
        pid = self.any_host_pid()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
