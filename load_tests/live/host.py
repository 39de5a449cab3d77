# SPDX-License-Identifier: Apache-2.0
"""Run a host that serves one live model, kill it, and ask it over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from graph_tools.tensors import Array
from load_tests._programs import ROOT, ProgramError
from load_tests.ports import free_port

__all__ = ["Connection", "LiveAnswer", "LiveHost"]

_MODEL = "ranking"
_START_S = 120.0
_TIMEOUT_S = 10.0
# If all CPUs are busy, work that only uses idle time would never finish.
_ALL_CPUS = ",".join(map(str, sorted(os.sched_getaffinity(0))))
_REFUSED = re.compile(r"^recprocessor_live_refused_total\{.*\} (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class LiveAnswer:
    """Contain the answer to some keys, and the epoch that the host names."""

    epoch: int
    keys: Array
    rows: Array
    y: Array


class Connection:
    """Ask a host on a persistent connection; use it in one thread."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)

    def ask(self, keys: Array, version: int = 1) -> LiveAnswer:
        """Send a request.

        Parameters
        ----------
        keys : ndarray [batch, features] int64
        version : int

        Raises
        ------
        OSError, http.client.HTTPException
            If the host does not answer.
        ValueError
            If it answers with another status than 200.
        """
        path = f"/v1/models/{_MODEL}/versions/{version}:predict"
        response, body = self._exchange("POST", path, {"inputs": {"a": keys.tolist()}})
        if response.status != 200:
            raise ValueError(f"status {response.status}: {body[:300]!r}")
        outputs = json.loads(body)["outputs"]
        rows, y = (np.array(outputs[name], np.float32) for name in ("rows", "y"))
        return LiveAnswer(int(response.headers["x-model-epoch"]), keys, rows, y)

    def ready(self, version: int) -> bool:
        """Return whether a version is ready."""
        response, _ = self._exchange("GET", f"/v2/models/{_MODEL}/versions/{version}/ready", None)
        return response.status == 200

    def refused(self) -> int:
        """Return how many segments the host has refused."""
        _, body = self._exchange("GET", "/metrics", None)
        found = _REFUSED.search(body.decode())
        return int(found[1]) if found else 0

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        self._connection.close()

    def _exchange(self, method: str, path: str, content: Any) -> tuple[http.client.HTTPResponse, bytes]:
        try:
            self._connection.request(method, path, None if content is None else json.dumps(content))
            response = self._connection.getresponse()
            return response, response.read()
        except BaseException:
            self._connection.close()
            raise


class LiveHost:
    """Run a host until the end of the block; its ports stay the same.

    Parameters
    ----------
    artifact : Path
    timelines : mapping of int to Path
        By version: the timeline that it follows; all begin with the artifact.
    folder : Path
        A folder for its state and its log.
    sessions : int
        Of each version.
    """

    def __init__(self, artifact: Path, timelines: Mapping[int, Path], folder: Path, sessions: int = 2) -> None:
        self.port, self._grpc = free_port(), free_port()
        self._artifact, self._folder, self._log = artifact.resolve(), folder, folder / "log"
        self._generation, self._sessions = 0, sessions
        folder.mkdir(parents=True, exist_ok=True)
        self.desire(timelines)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> LiveHost:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        assert self._process is not None
        return self._process.pid

    def desire(self, timelines: Mapping[int, Path], held: Mapping[int, int] | None = None) -> None:
        """Change the versions that the host serves, and the epochs at which some are held."""
        self._generation += 1
        epochs = held or {}
        config = {"session_num": self._sessions, "intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1}
        versions = {
            str(number): {"path": str(self._artifact), "follow": str(timeline.resolve()), "config": config}
            | ({"epoch": epochs[number]} if number in epochs else {})
            for number, timeline in timelines.items()
        }
        desired = {"schema": 1, "generation": self._generation, "maintenance_cpus": _ALL_CPUS}
        desired["models"] = {_MODEL: {"baseline": min(timelines), "versions": versions}}
        beside = self._folder / ".desired.json"
        beside.write_text(json.dumps(desired))
        beside.replace(self._folder / "desired.json")

    def copies(self) -> list[Path]:
        """Return the host's copies of segments."""
        return sorted((self._folder / "hosts").rglob("*.delta"))

    def start(self) -> None:
        """Start the host, and wait until it answers."""
        program = [sys.executable, "-m", "serving_proxy.host", "--state-dir", str(self._folder)]
        ports = ["--grpc-port", str(self._grpc), "--rest-port", str(self.port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*program, *ports], stdout=log, stderr=log, cwd=ROOT)
        self.wait(self._listens, "a host that answers", _START_S)

    def kill(self) -> None:
        """Kill the process as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait(self, found: Callable[[], bool], what: str, seconds: float) -> None:
        """Call a function until its result is true.

        Raises
        ------
        ProgramError
            If this took too long, or the host ended.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if found():
                return
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(0.003)
        text = self._log.read_text()[-3000:]
        raise ProgramError("host", 0, f"no {what} after {seconds:g} s; end of its log:\n{text}")

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False
