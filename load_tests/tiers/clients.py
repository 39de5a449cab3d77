# SPDX-License-Identifier: Apache-2.0
"""Send requests to a contestant: a model in this process, or a process that answers files of requests."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import processor
from load_tests._programs import ROOT
from load_tests.tiers.served_table import BATCH, DIM

__all__ = ["MOST_ANSWERS", "THREADS", "Contestant", "ModelClient", "PeerProcess"]

#: Threads, each of which sends one request at a time.
THREADS = 8
MOST_ANSWERS = 10


class Contestant(Protocol):
    """Answers requests int64 [n, BATCH, IDS]."""

    def send(self, requests: NDArray[np.int64]) -> tuple[float, NDArray[np.float64]]:
        """Return the requests per second and all latencies [n] in ms."""

    def answer(self, requests: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the sums [n, BATCH, DIM]."""


class ModelClient:
    """Sends requests to a model from several threads."""

    def __init__(self, model: processor.Model) -> None:
        self._model = model

    def send(self, requests: NDArray[np.int64]) -> tuple[float, NDArray[np.float64]]:
        latencies = np.zeros(len(requests))

        def send_some(first: int) -> None:
            for number in range(first, len(requests), THREADS):
                begun = time.perf_counter()
                self._model.run({"ids": requests[number]})
                latencies[number] = 1e3 * (time.perf_counter() - begun)

        threads = [threading.Thread(target=send_some, args=[first]) for first in range(THREADS)]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(requests) / (time.perf_counter() - begun), latencies

    def answer(self, requests: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.stack([self._model.run({"ids": ids})["sums"] for ids in requests])


class PeerProcess:
    """A process that gets names of files of requests, one a line, and prints a line of JSON for each.

    Parameters
    ----------
    command : sequence
        It prints a line of JSON when it can answer: `started`. Of files with fewer than `MOST_ANSWERS` requests, it
        writes the sums to a file with the suffix ".sums".
    folder : Path
        For the files.
    """

    def __init__(self, command: Sequence[object], folder: Path) -> None:
        self._command = " ".join(map(str, command))
        self._process = subprocess.Popen(
            [str(part) for part in command], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._file = folder / "requests"
        try:
            self.started: dict[str, Any] = self._read()
        except BaseException:
            self._process.kill()
            raise

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._command}: ended with status {self._process.wait()}")
        return json.loads(line)

    def send(self, requests: NDArray[np.int64]) -> tuple[float, NDArray[np.float64]]:
        assert self._process.stdin is not None
        requests.tofile(self._file)
        print(self._file, file=self._process.stdin, flush=True)
        found = self._read()
        return found["requests_per_s"], np.array(found["latencies_ms"])

    def answer(self, requests: NDArray[np.int64]) -> NDArray[np.float32]:
        assert len(requests) < MOST_ANSWERS
        self.send(requests)
        sums = self._file.with_suffix(".sums")
        return np.fromfile(sums, np.float32).reshape(len(requests), BATCH, DIM)

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
