# SPDX-License-Identifier: Apache-2.0
"""Versions that end their host while they load: other versions keep serving, and the faulty version fails."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers.hosts.host_requests import ranking_body
from helpers.hosts.served_hosts import ROOT, ServedHost, program, version
from helpers.models.deadly_models import build_deadly
from helpers.system.waiting import wait_until
from load_tests.ports import free_port

pytestmark = pytest.mark.slow

# On a machine that does nothing else a host is back in three to five seconds.
_RECOVERY_S = 45.0


@pytest.fixture(scope="session")
def deadly(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def make(kind: str) -> Path:
        if kind not in made:
            folder = tmp_path_factory.mktemp("deadly")
            made[kind] = build_deadly(folder / kind, kind)
        return made[kind]

    return make


@dataclass(frozen=True)
class Asked:
    at: float
    good: bool


class Kept(ServedHost):
    """A host that is restarted half a second after it ends, on the same ports, and a client that sends requests."""

    def __init__(self, kind: str, state_dir: Path, models: dict[str, Any]) -> None:
        self.rest_port = free_port()
        ports = ("--rest-port", str(self.rest_port), "--grpc-port", str(free_port()))
        super().__init__(kind, state_dir, models, ports)
        self.deaths: list[int] = []
        self.asked: list[Asked] = []
        self.ending = False
        self.expected: bytes | None = None

    def spawn(self) -> None:
        command = [*program(self.kind), "--state-dir", str(self.state_dir), "--host-id", self.name, *self._arguments]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def keep(self) -> None:
        while not self.ending:
            assert self.process is not None
            code = self.process.poll()
            if code is not None and not self.ending:
                self.deaths.append(code)
                time.sleep(0.5)
                self.spawn()
            time.sleep(0.05)

    def ask(self) -> None:
        url = f"http://127.0.0.1:{self.rest_port}/api/predict/ranking"
        while not self.ending:
            try:
                answer = httpx.post(url, content=ranking_body(), timeout=30)
                good = answer.status_code == 200
                if good and self.expected is None:
                    self.expected = answer.content
                good = good and answer.content == self.expected
            except httpx.HTTPError:
                good = False
            self.asked.append(Asked(time.monotonic(), good))
            time.sleep(0.02)

    def longest_gap(self) -> float:
        """Return the longest time without an answer [s]."""
        answered = [answer.at for answer in self.asked if answer.good]
        return max((b - a for a, b in itertools.pairwise(answered)), default=float("inf"))

    def actual(self) -> dict[str, Any]:
        """Return the content of actual.json; empty while the process is down."""
        down = {"state": "absent", "endpoints": {}, "models": {}, "generation": -1}
        return down if self.process is None or self.process.poll() is not None else super().actual()

    def state_of(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = self.actual()["models"].get("ranking", {}).get("versions", {}).get(str(number), {})
        return found


@contextmanager
def kept(kind: str, state_dir: Path, models: dict[str, Any]) -> Iterator[Kept]:
    host = Kept(kind, state_dir, models)
    host.spawn()
    threads = [threading.Thread(target=work) for work in (host.keep, host.ask)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: any(answer.good for answer in host.asked), timeout=120)
        yield host
    finally:
        host.ending = True
        for thread in threads:
            thread.join(60)
        if host.process is not None and host.process.poll() is None:
            host.process.kill()
            host.process.wait()


def ranking(served_models: dict[str, Any], *more: Path, **settings: Any) -> dict[str, Any]:
    """Version 1 serves, those of `more` have no traffic."""
    versions = {"1": served_models["ranking"]["versions"]["1"]}
    for number, path in enumerate(more, 2):
        versions[str(number)] = version(path, **settings)
    return {"ranking": {"baseline": 1, "versions": versions}}


def test_an_aborting_version_fails_after_two_deaths(
    host_kind: str, tmp_path: Path, served_models: dict[str, Any], deadly: Callable[[str], Path]
) -> None:
    with kept(host_kind, tmp_path, ranking(served_models)) as host:
        host.desire(ranking(served_models, deadly("abort")))
        wait_until(lambda: host.state_of(2).get("state") == "failed", timeout=180)
        assert "the host died twice while it loaded this version (" in host.state_of(2)["error"]
        wait_until(lambda: host.asked[-1].good, timeout=60)
        seen = len(host.asked)
        wait_until(lambda: len(host.asked) > seen + 50, timeout=60)
        assert all(answer.good for answer in host.asked[seen:])
        assert host.deaths == [-signal.SIGABRT] * 2
        assert host.longest_gap() < _RECOVERY_S
        # An operator's restart changes nothing of that, another entry does.
        host.process.send_signal(signal.SIGTERM)
        wait_until(lambda: len(host.deaths) == 3 and host.state_of(2).get("state") == "failed", timeout=120)
        assert host.deaths[2] == 0
        host.desire(ranking(served_models, Path(served_models["ranking"]["versions"]["2"]["path"])))
        wait_until(lambda: host.state_of(2).get("state") == "ready", timeout=120)
        assert len(host.deaths) == 3


def test_a_version_whose_warm_up_kills_the_host_fails(
    host_kind: str, tmp_path: Path, served_models: dict[str, Any], deadly: Callable[[str], Path]
) -> None:
    # What the kernel without memory and a wild pointer do, at a moment that is sure to be that of the warm-up. Go's
    # runtime ends by itself, with 2, on a SIGSEGV that another process sent.
    number, ended = (signal.SIGSEGV, 2) if host_kind == "go" else (signal.SIGKILL, -signal.SIGKILL)
    with kept(host_kind, tmp_path, ranking(served_models)) as host:
        host.desire(ranking(served_models, deadly("endless")))
        for count in (1, 2):
            wait_until(lambda: host.state_of(2).get("state") == "warming", timeout=120)
            wait_until(lambda: host.state_of(1).get("state") == "ready")
            os.kill(host.pid, number)
            wait_until(lambda count=count: len(host.deaths) == count, timeout=60)
        wait_until(lambda: host.state_of(2).get("state") == "failed", timeout=120)
        assert host.deaths == [ended] * 2
        assert host.longest_gap() < _RECOVERY_S


def test_several_aborting_versions_all_fail(
    host_kind: str, tmp_path: Path, served_models: dict[str, Any], deadly: Callable[[str], Path]
) -> None:
    path = deadly("abort")
    other = Path(served_models["ranking"]["versions"]["2"]["path"])
    with kept(host_kind, tmp_path, ranking(served_models)) as host:
        host.desire(ranking(served_models, path, path, other))
        wait_until(
            lambda: [host.state_of(n).get("state") for n in (2, 3, 4)] == ["failed", "failed", "ready"], timeout=240
        )
        assert 2 <= len(host.deaths) <= 5
        assert host.longest_gap() < _RECOVERY_S


def test_a_signaled_host_blames_no_version(
    host_kind: str, tmp_path: Path, served_models: dict[str, Any], deadly: Callable[[str], Path]
) -> None:
    with kept(host_kind, tmp_path, ranking(served_models)) as host:
        host.desire(ranking(served_models, deadly("endless")))
        for count in (1, 2, 3):
            wait_until(lambda: host.state_of(2).get("state") == "warming", timeout=120)
            os.kill(host.pid, signal.SIGTERM)
            wait_until(lambda count=count: len(host.deaths) == count, timeout=60)
        wait_until(lambda: host.state_of(2).get("state") == "warming", timeout=120)
        assert host.deaths == [0, 0, 0]


def test_a_served_baseline_is_never_blamed(host_kind: str, tmp_path: Path, served_models: dict[str, Any]) -> None:
    with kept(host_kind, tmp_path, ranking(served_models)) as host:
        records = tmp_path / "hosts" / "host-0" / "loads.json"
        for count in (1, 2, 3):
            # As if each process had died while it loaded the baseline, alone.
            os.kill(host.pid, signal.SIGKILL)
            text = records.read_text(encoding="utf-8")
            assert '"good":true' in text
            records.write_text(text.replace('"loading":false', '"loading":true'), encoding="utf-8")
            wait_until(lambda count=count: len(host.deaths) == count, timeout=60)
            wait_until(lambda: host.actual()["endpoints"] and host.asked[-1].good, timeout=120)
        assert host.state_of(1)["state"] == "ready"
