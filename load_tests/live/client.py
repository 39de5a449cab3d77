# SPDX-License-Identifier: Apache-2.0
"""Run `bench_live` (libprocessor/bench): it serves a live model to clients that check every answer."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from load_tests._programs import ProgramError
from load_tests.live.model import Shape
from load_tests.live.setup import Setup

__all__ = ["LiveClients"]

_WAIT_S = 120.0


class LiveClients:
    """Run the program until the end of the block.

    Parameters
    ----------
    setup : Setup
    artifact : Path
    shape : Shape
    config : mapping
        Configuration of the model, with `follow`.
    **options
        Further options of the program: `threads`, `rate`, `batch`, `hot`.

    Attributes
    ----------
    epoch : int
        The newest epoch of an answer so far.
    report : dict
        The results, after the block.
    """

    def __init__(self, setup: Setup, artifact: Path, shape: Shape, config: Mapping[str, Any], **options: float) -> None:
        self.epoch, self.report = 0, dict[str, Any]()
        self._reached = threading.Condition()
        self._first: dict[int, int] = {}
        self._measured: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._loaded = threading.Event()
        command = [str(setup.program), "--library", str(setup.library), "--model", str(artifact.resolve())]
        given: dict[str, Any] = {"features": shape.features, "keys": shape.keys, "hot": shape.keys} | options
        for name, value in (given | {"config": json.dumps(config)}).items():
            command += [f"--{name}", str(value)]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={"TF_CPP_MIN_LOG_LEVEL": "3"} | os.environ,
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> LiveClients:
        try:
            if not self._loaded.wait(_WAIT_S) or self._process.poll() is not None:
                raise self._failure("the model was not loaded")
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self._process.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_WAIT_S)
        self._reader.join()
        if kind is None and (self._process.returncode or not self.report):
            raise self._failure("it ended early")

    def wait_for(self, epoch: int, seconds: float = _WAIT_S) -> int:
        """Wait until an answer was of an epoch or a later one, and return when the first one was [ns, monotonic].

        Raises
        ------
        ProgramError
            If this takes too long, or the program ended.
        """
        until = time.monotonic() + seconds
        with self._reached:
            while self.epoch < epoch:
                left = until - time.monotonic()
                if left <= 0 or self._process.poll() is not None:
                    raise self._failure(f"epoch {self.epoch} answers, expected {epoch}")
                self._reached.wait(min(left, 1.0))
            return min((at for number, at in self._first.items() if number >= epoch), default=0)

    def measure(self) -> dict[str, Any]:
        """Return the number of requests since the last call, and percentiles of their latency [µs]."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found = self._measured.get(timeout=_WAIT_S)
        if found is None:
            raise self._failure("it ended early")
        return found

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            line = json.loads(text)
            if "epoch" in line:
                with self._reached:
                    self.epoch = max(self.epoch, line["epoch"])
                    self._first[line["epoch"]] = line["at_ns"]
                    self._reached.notify_all()
            elif "loaded" in line:
                self._loaded.set()
            elif "answers" in line:
                self.report = line
            else:
                self._measured.put(line)
        self._measured.put(None)
        self._loaded.set()

    def _failure(self, what: str) -> ProgramError:
        self._errors.seek(0)
        return ProgramError("bench_live", self._process.poll() or 0, f"{what}\n{self._errors.read()}")
