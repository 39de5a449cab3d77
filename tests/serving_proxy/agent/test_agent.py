# SPDX-License-Identifier: Apache-2.0
"""An agent with files of its own, and states that a test gives it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from serving_proxy.agent.agent import Agent
from serving_proxy.agent.artifacts import SharedFolders, Told
from serving_proxy.agent.link import Link
from serving_proxy.agent.settings import AgentSettings
from serving_proxy.errors import NotFoundError, UnavailableError
from serving_proxy.records.agents import MachineState


def make_agent(folder: Path, artifacts: Any = None) -> Agent:
    settings = AgentSettings(server=("http://127.0.0.1:1",), state_dir=folder, machine="m")
    return Agent(folder, Link(settings), artifacts or SharedFolders(), 0.1)


def state(term: int, generation: int, *numbers: int) -> MachineState:
    versions = {str(number): {"path": f"/models/{number}"} for number in numbers}
    models = {"a": {"baseline": numbers[0], "versions": versions}} if numbers else {}
    return MachineState(term=term, generation=generation, desired={"schema": 1, "models": models})


def desired(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "desired.json").read_bytes())
    return found


async def settle(agent: Agent, until: Any) -> None:
    task = asyncio.create_task(agent.apply())
    async with asyncio.timeout(60):
        while not until():
            await asyncio.sleep(0.01)
    task.cancel()


class Gradual:
    """Files that are there once a test says so."""

    def __init__(self) -> None:
        self.there: set[str] = set()

    async def fetch(self, entry: Mapping[str, Any], told: Told) -> str:
        if entry["path"] not in self.there:
            raise NotFoundError(f"{entry['path']}: not there yet")
        return f"/store{entry['path']}"


def test_lower_states_are_refused_also_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        agent = make_agent(tmp_path)
        assert agent.accept(state(2, 5))
        await settle(agent, lambda: agent.applied == (2, 5))
        assert not agent.accept(state(1, 900))
        assert not agent.accept(state(2, 4))
        assert agent.refused is not None
        assert "older than term 2, generation 5" in agent.refused
        # Another proxy, which has lost its state, and has happened to come as far.
        assert not agent.accept(state(2, 5, 1))
        assert "another state than term 2, generation 5" in agent.refused
        again = make_agent(tmp_path)
        assert again.memory.order == (2, 5)
        assert not again.accept(state(1, 901))
        assert again.accept(state(3, 1))
        assert again.refused is None
        await settle(again, lambda: again.applied == (3, 1))
        assert desired(tmp_path)["generation"] == 1

    asyncio.run(run())


def test_first_state_is_written_once_it_is_complete_so_that_hosts_are_not_ready_before(tmp_path: Path) -> None:
    async def run() -> None:
        files = Gradual()
        agent = make_agent(tmp_path, files)
        assert "waiting" in desired(tmp_path)
        agent.accept(state(1, 1, 1, 2))
        await settle(agent, lambda: set(agent.fetches.failed) == {"a/1", "a/2"})
        assert "waiting" in desired(tmp_path)
        files.there = {"/models/1"}
        await settle(agent, lambda: agent.applied == (1, 1))
        assert list(desired(tmp_path)["models"]["a"]["versions"]) == ["1"]
        files.there.add("/models/2")
        await settle(agent, lambda: len(desired(tmp_path)["models"]["a"]["versions"]) == 2)
        assert agent.origins["/store/models/2"] == "/models/2"

    asyncio.run(run())


def test_other_changes_do_not_wait_for_files(tmp_path: Path) -> None:
    async def run() -> None:
        files = Gradual()
        files.there = {"/models/1"}
        agent = make_agent(tmp_path, files)
        agent.accept(state(1, 1, 1))
        await settle(agent, lambda: agent.applied == (1, 1))
        later = state(1, 2, 1, 2)
        later.desired["models"]["a"]["labels"] = {"stable": 1}
        agent.accept(later)
        await settle(agent, lambda: agent.applied == (1, 2))
        assert desired(tmp_path)["models"]["a"]["labels"] == {"stable": 1}
        assert list(desired(tmp_path)["models"]["a"]["versions"]) == ["1"]

    asyncio.run(run())


def test_damaged_files_of_an_agent_count_as_none(tmp_path: Path) -> None:
    (tmp_path / "agent.json").write_text('{"paths": 5}')
    (tmp_path / "desired.json").write_text("{")
    agent = make_agent(tmp_path)
    assert agent.memory.order == (0, 0)


@pytest.mark.parametrize(
    "models", [None, {"a": 1}, {"a": {"versions": {}}}, {"a": {"baseline": 1, "versions": {"1": {}}}}]
)
def test_half_states_are_refused(models: Any) -> None:
    with pytest.raises(ValidationError):
        MachineState(term=1, generation=1, desired={"models": models})


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="not on this machine"):
        asyncio.run(SharedFolders().fetch({"path": str(tmp_path / "x")}, lambda done, total: None))


def test_proxy_that_does_not_answer_is_named(tmp_path: Path) -> None:
    link = Link(AgentSettings(server=("http://127.0.0.1:1",), state_dir=tmp_path, machine="m"))
    with pytest.raises(UnavailableError, match=r"http://127\.0\.0\.1:1: "):
        asyncio.run(link.desired(None))
