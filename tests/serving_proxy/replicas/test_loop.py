# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from serving_proxy.replicas import loop
from serving_proxy.replicas.driver import Driver
from serving_proxy.replicas.loop import ReplicaOptions, Replicas


class _Two:
    def wanted(self, cpu_s: Mapping[str, float]) -> tuple[int, str]:
        return 2, "given"


class _CountingDriver(Driver):
    """A driver that counts its calls."""

    calls = 0

    async def call(self, what: str, **values: Any) -> Any:
        self.calls += 1
        return await super().call(what, **values)


def test_replicas_are_waited_for_while_the_first_connections_fail(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "serving_proxy.replicas")
    monkeypatch.setattr(loop, "_PERIOD_S", 0.01)
    # There is no such module, so its process ends before it answers.
    driver = _CountingDriver("no_such_driver", {"address": "10.0.0.1:6379"})
    options = ReplicaOptions({"cores": 1}, {"servers": ["http://127.0.0.1:1"]}, 1.0, (2, 2))
    notes: list[str] = []
    told_at: list[int] = []

    async def run() -> None:
        replicas = Replicas(
            driver,
            options,
            _Two(),
            lambda: True,
            lambda kind, said: notes.append(said),
            lambda name: None,
            lambda: told_at.append(driver.calls),
        )
        assert replicas.view().fault == "--ray-address 10.0.0.1:6379: connecting"
        running = asyncio.create_task(replicas.run())
        async with asyncio.timeout(120):
            while not told_at:
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
    assert told_at[0] == 5
    # Said at once, and once only, although it connects again and again.
    assert [record.getMessage() for record in caplog.records if "connecting" in record.getMessage()] == [
        "--ray-address 10.0.0.1:6379: connecting to the Ray cluster, for at most 60 s"
    ]
    assert "--ray-address 10.0.0.1:6379: the connection ended" in notes[0]
