# SPDX-License-Identifier: Apache-2.0
"""Questions to agents about request logs, answered out of order and by agents that are started again."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from serving_proxy.fleet.logs import MachineLogs
from serving_proxy.fleet.machines import Machines
from serving_proxy.records.agents import AgentReport
from serving_proxy.records.machine_logs import LOGS_FEATURE, LogAnswer

REPORT = AgentReport(agent="x", version="1", features=(LOGS_FEATURE,))


def machines_of(*names: str, clock: Callable[[], float] = time.monotonic) -> Machines:
    """Return machines whose agents have reported just now."""
    machines = Machines(clock=clock)
    for name in names:
        machines.accept(name, REPORT, (1, 1))
    return machines


def announced(data: bytes) -> LogAnswer:
    return LogAnswer(records=1, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def newest(folder: Path, answer: Callable[[MachineLogs, dict[str, str]], Awaitable[None]]) -> dict[str, bytes]:
    """Ask two machines for their newest requests; return what arrives while `answer` gives the answers."""
    received: dict[str, bytes] = {}

    def use(sent: dict[str, Path]) -> None:
        received.update({name: path.read_bytes() for name, path in sent.items()})

    async def run() -> None:
        logs = MachineLogs(machines_of("a", "b"), folder)
        asking = asyncio.create_task(logs.newest("ranking", 10, 1 << 21, use))
        while not logs.questions_for("b") and not asking.done():
            await asyncio.sleep(0)
        await answer(logs, {name: logs.questions_for(name)[0].id for name in ("a", "b")})
        assert await asking == {}

    asyncio.run(run())
    assert not folder.exists()
    return received


def test_machine_that_has_sent_everything_is_not_asked_again(tmp_path: Path) -> None:
    async def answer(logs: MachineLogs, ids: dict[str, str]) -> None:
        await logs.answer("a", ids["a"], announced(b"of a"))
        assert await logs.receive("a", ids["a"], 0, b"of a") == 4
        assert logs.questions_for("a") == ()
        # An agent that was started again has been told the question just before, and has read a newer log.
        await logs.answer("a", ids["a"], announced(b"newer of a"))
        assert await logs.receive("a", ids["a"], 0, b"newer") == 4
        assert [ask.id for ask in logs.questions_for("b")] == [ids["b"]]
        await logs.answer("b", ids["b"], announced(b"of b"))
        await logs.receive("b", ids["b"], 0, b"of b")

    assert newest(tmp_path / "received", answer) == {"a": b"of a", "b": b"of b"}


def test_machine_started_again_halfway_sends_its_newer_log(tmp_path: Path) -> None:
    async def answer(logs: MachineLogs, ids: dict[str, str]) -> None:
        await logs.answer("a", ids["a"], announced(b"of a"))
        assert await logs.receive("a", ids["a"], 0, b"of") == 2
        await logs.answer("a", ids["a"], announced(b"newer"))
        assert await logs.receive("a", ids["a"], 0, b"newer") == 5
        await logs.answer("b", ids["b"], announced(b"of b"))
        await logs.receive("b", ids["b"], 0, b"of b")

    assert newest(tmp_path / "received", answer) == {"a": b"newer", "b": b"of b"}


def test_machine_that_announces_no_bytes_is_left_out(tmp_path: Path) -> None:
    async def answer(logs: MachineLogs, ids: dict[str, str]) -> None:
        await logs.answer("a", ids["a"], LogAnswer())
        await logs.answer("b", ids["b"], announced(b"of b"))
        await logs.receive("b", ids["b"], 0, b"of b")

    assert newest(tmp_path / "received", answer) == {"b": b"of b"}


def test_requests_that_a_killed_proxy_has_left_are_removed(tmp_path: Path) -> None:
    left = tmp_path / "received" / "0123"
    left.parent.mkdir()
    left.write_bytes(b"what a client sent")
    MachineLogs(machines_of("a"), tmp_path / "received")
    assert not left.parent.exists()


def seconds_until_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch, reports_per_s: float) -> float:
    """Return after how long a machine that reports, but answers nothing, is not waited for any longer."""
    monkeypatch.setattr("serving_proxy.fleet.machines._REPORTS_PER_S", reports_per_s)
    monkeypatch.setattr("serving_proxy.fleet.logs._LOOK_S", 0.0)
    now = 0.0

    async def run() -> float:
        nonlocal now
        machines = machines_of("a", clock=lambda: now)
        logs = MachineLogs(machines, folder, lambda: now)
        asking = asyncio.create_task(logs.files("ranking"))
        while not asking.done():
            now += 0.25
            machines.accept("a", REPORT, (1, 1))
            await asyncio.sleep(0)
        answers, missing = await asking
        assert answers == {}
        assert "machine 'a': 0 bytes of its request log after" in str(missing["a"])
        return now

    return asyncio.run(run())


def test_patience_grows_with_the_time_between_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 15 < seconds_until_given_up(tmp_path / "received", monkeypatch, 200.0) < 24
    # With so many machines that each reports every eight seconds.
    assert 24 < seconds_until_given_up(tmp_path / "received", monkeypatch, 1 / 8) < 40
