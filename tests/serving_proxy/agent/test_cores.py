# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cost_model.machine import Machine
from serving_proxy.agent.agent import Agent
from serving_proxy.agent.artifacts import SharedFolders
from serving_proxy.agent.cores import divide, machine_of, with_cores
from serving_proxy.agent.link import Link
from serving_proxy.agent.settings import AgentSettings
from serving_proxy.records.agents import MachineState, PlacedCores
from serving_proxy.system.cpus import read_cpus

FOUR = Machine.even(4, smt=2)


def cores(**lists: str) -> dict[str, PlacedCores]:
    return {name: PlacedCores(cores=len(read_cpus(text)), core_list=text) for name, text in lists.items()}


def test_versions_get_the_cores_of_their_lists_with_siblings_and_others_what_is_left() -> None:
    found = divide(cores(a="0-1", b="2", c="2"), ["a", "b", "c", "d"], FOUR)
    assert found.cpus == {"a": "0-1,4-5", "b": "2,6", "c": "2,6", "d": "3,7"}
    assert found.fault == ""
    assert divide(cores(a="0-3"), ["a", "d"], FOUR).cpus == {"a": "0-7"}
    assert divide({}, ["a"], FOUR).cpus == {}
    # A version that is not there leaves its cores to others.
    assert divide(cores(a="0-1", b="2"), ["b", "d"], FOUR).cpus == {"b": "2,6", "d": "0-1,3-5,7"}


def test_machine_with_other_cores_gives_as_many_of_its_own() -> None:
    found = divide(cores(a="8-9", b="12", c="12"), ["a", "b", "c"], FOUR)
    assert found.cpus == {"a": "0-1,4-5", "b": "2,6", "c": "2,6"}
    assert found.fault == ""


def test_machine_with_too_few_cores_says_so() -> None:
    found = divide(cores(a="0-2", b="10-12"), ["a", "b"], FOUR)
    assert found.cpus["a"] == "0-2,4-6"
    # What has no cores of its own shares those that are left.
    assert found.cpus["b"] == "3,7"
    assert found.fault == "4 cores, expected 2 more; versions without room share those that are left"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, {"config": {"worker_threads": 8}, "cpuset": "0-1"}),
        ({"cpuset": "7"}, {"cpuset": "7"}),
        ({"config": {"session_num": 4}}, {"config": {"session_num": 4, "worker_threads": 2}, "cpuset": "0-1"}),
        ({"config": {"worker_threads": 1}}, {"config": {"worker_threads": 1}, "cpuset": "0-1"}),
        ({"batching": {"mode": "timed"}}, {"batching": {"mode": "timed"}, "cpuset": "0-1"}),
    ],
)
def test_entries_get_cpus_and_threads_unless_an_operator_has_set_them(
    entry: dict[str, Any], expected: dict[str, Any]
) -> None:
    desired = {"models": {"a": {"versions": {"1": entry}}}}
    body = {"schema": 1, "models": {"a": {"baseline": 1, "versions": {"1": {"path": "/local", **entry}}}}}
    found = with_cores(body, desired, {"a/1": "0-1"}, 8)
    assert found["models"]["a"]["versions"]["1"] == {"path": "/local", **expected}
    # A version that shares all CPUs has the same threads, so that it is not loaded again when it gets some.
    shared = with_cores(body, desired, {"b/1": "0-1"}, 8)["models"]["a"]["versions"]["1"]
    assert shared.get("config") == expected.get("config")
    assert shared.get("cpuset") == entry.get("cpuset")
    # Without placed cores, those of an earlier placement end.
    again = with_cores(found, desired, {}, 8)["models"]["a"]["versions"]["1"]
    assert again.get("cpuset") == entry.get("cpuset")


def test_agent_writes_the_cores_of_its_machine(tmp_path: Path) -> None:
    async def run() -> dict[str, Any]:
        settings = AgentSettings(server=("http://127.0.0.1:1",), state_dir=tmp_path, machine="m")
        agent = Agent(tmp_path, Link(settings), SharedFolders(), 0.1)
        agent.see_cpus(frozenset({0}))
        model = {"baseline": 1, "versions": {"1": {"path": str(tmp_path)}}}
        placed = {"a/1": PlacedCores(cores=1, core_list="9"), "b/1": PlacedCores(cores=1, core_list="8")}
        desired = {"schema": 1, "models": {"a": model, "b": model}}
        agent.accept(MachineState(term=1, generation=1, desired=desired, cores=placed))
        task = asyncio.create_task(agent.apply())
        async with asyncio.timeout(60):
            while agent.applied != (1, 1):
                await asyncio.sleep(0.01)
        task.cancel()
        assert agent.cores_fault == "1 cores, expected 1 more; versions without room share all"
        found: dict[str, Any] = json.loads((tmp_path / "desired.json").read_bytes())
        return found

    models = asyncio.run(run())["models"]
    assert [models[name]["versions"]["1"].get("cpuset") for name in ("a", "b")] == [None, "0"]
    assert [len(core.cpus) for core in machine_of({0}).cores] == [1]
