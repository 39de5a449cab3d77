# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from serving_proxy.agent.agent import Agent
from serving_proxy.agent.artifacts import SharedFolders
from serving_proxy.agent.link import Link
from serving_proxy.agent.link_faults import LinkFaults
from serving_proxy.agent.reports import Reporter
from serving_proxy.agent.settings import AgentSettings


class _Counting(LinkFaults):
    """Counts the faults of each request."""

    def __init__(self) -> None:
        super().__init__()
        self.count = {"desired": 0, "report": 0}

    def failed(self, request: str, fault: str) -> None:
        """Log a fault, unless it is known."""
        super().failed(request, fault)
        self.count[request] += 1


def test_a_proxy_that_is_not_there_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        link = Link(AgentSettings(server=("http://127.0.0.1:1",), state_dir=tmp_path, machine="m"))
        link.faults = faults = _Counting()
        agent = Agent(tmp_path, link, SharedFolders(), 0.1)
        loops = [asyncio.create_task(loop) for loop in (agent.follow(), Reporter(tmp_path, link, agent).run())]
        while min(faults.count.values()) < 2:
            await asyncio.sleep(0.01)
        for loop in loops:
            loop.cancel()
        await link.close()

    asyncio.run(asyncio.wait_for(run(), 60))
    (said,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert said.startswith("http://127.0.0.1:1: ")
    assert said.endswith("; hosts keep serving")


def test_each_fault_is_logged_when_it_comes_and_the_proxy_when_all_requests_are_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    faults = LinkFaults()
    faults.answered("report", "a")
    faults.failed("desired", "refused")
    faults.failed("report", "refused")
    faults.failed("desired", "no answer")
    faults.failed("report", "no answer")
    faults.answered("desired", "b")
    faults.answered("report", "b")
    faults.failed("report", "refused")
    assert [record.message for record in caplog.records] == [
        "refused; hosts keep serving",
        "no answer; hosts keep serving",
        "follows b",
        "refused; hosts keep serving",
    ]
