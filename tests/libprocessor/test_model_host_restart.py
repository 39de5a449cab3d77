# SPDX-License-Identifier: Apache-2.0
"""A host that was killed comes back to what it served, and one on a full disk goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from helpers.hosts.contract_messages import decode, encode
from helpers.hosts.state_directory import StateDirectory, model_of
from helpers.models import model_builders
from helpers.system.waiting import wait_until

X = np.array([[1.0, 2.0, 3.0]], np.float32)


class PlainHost:
    """`plain_host.py`, ready."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert self._line() == "ready"

    def ask(self) -> tuple[int, np.ndarray]:
        assert self.process.stdin is not None
        print(encode({"x": X}).hex(), file=self.process.stdin, flush=True)
        version, data = self._line().split()
        return int(version), decode(bytes.fromhex(data))["y"]

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def plain_host(repository: Path, state: StateDirectory, *arguments: str) -> Iterator[PlainHost]:
    command = [sys.executable, str(repository / "tests/helpers/hosts/plain_host.py"), str(state.path), *arguments]
    environment = os.environ | {"PYTHONPATH": str(repository)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield PlainHost(process)
        finally:
            process.kill()


def test_a_killed_host_serves_again_after_a_restart(repository: Path, tmp_path: Path, tiny_model: Path) -> None:
    other = model_builders.build_linear(tmp_path / "other", 2.0)
    state = StateDirectory(tmp_path / "state")
    versions = {"1": {"path": str(tiny_model)}, "2": {"path": str(other)}}
    state.desire({"m": {"baseline": 2, "versions": versions}})
    actual = []
    for _ in range(2):
        with plain_host(repository, state) as host:
            version, y = host.ask()
            assert version == 2
            np.testing.assert_array_equal(y, model_builders.linear_score(X, 2.0))
            wait_until(lambda: state.actual()["pid"] == host.process.pid, "actual.json")
            wait_until(lambda: state.actual()["state"] == "ready", "actual.json")
            actual.append(state.actual())
    first, second = actual
    assert first["pid"] != second["pid"]
    for key in ("generation", "state", "desired_error", "host"):
        assert first[key] == second[key]
    for report in (first, second):
        states = {number: version["state"] for number, version in report["models"]["m"]["versions"].items()}
        assert states == {"1": "ready", "2": "ready"}


def test_requests_are_answered_on_a_full_disk(repository: Path, tmp_path: Path, tiny_model: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    state.desire({"m": model_of(tiny_model)})
    with plain_host(repository, state, "64") as host:
        for _ in range(3):
            version, y = host.ask()
            assert version == 1
            np.testing.assert_array_equal(y, model_builders.linear_score(X))
        state.desire({"m": model_of(tiny_model, 2)})
        wait_until(lambda: host.ask()[0] == 2, "the new version")
        assert not (state.path / "hosts" / "host-0" / "actual.json").exists()
        host.process.kill()
        assert host.process.stderr is not None
        told = [line for line in host.process.stderr.read().splitlines() if "actual.json" in line]
        assert len(told) == 1, told
