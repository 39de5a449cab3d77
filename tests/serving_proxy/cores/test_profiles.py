# SPDX-License-Identifier: Apache-2.0
"""Profiles in the folder, and what is found for versions there."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cost_model.machine import Machine
from cost_model.profiling.profile import Profile, cpu_model
from serving_proxy.cores import DeployedTenant
from serving_proxy.cores import loop as cores_module
from serving_proxy.cores import profiles as profiles_module
from serving_proxy.cores.loop import Cores
from serving_proxy.cores.profiles import Profiles
from serving_proxy.counters.windows import Totals
from serving_proxy.deploy.control import Control, ControlOptions
from serving_proxy.gates import profile as gate_module
from serving_proxy.store import Database, Repository

GRAPH = "0123456789abcdef"
TENANT = DeployedTenant("ranking/3", "ranking", 3, "baseline", 20.0, "/models/3")


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Control:
    for module in (profiles_module, gate_module):
        monkeypatch.setattr(module, "fingerprint", lambda _: GRAPH)
    made = Control(ControlOptions(tmp_path, cores="plan"), Repository(Database(tmp_path / "proxy.sqlite3")))
    made.options.profiles.mkdir()
    return made


def profile(folder: Path, name: str = "one", us: float = 100.0) -> Path:
    made = Profile(GRAPH, cpu_model())
    made.add(1, 1, np.full(10, us))
    made.save(folder / f"{name}.json")
    return folder / f"{name}.json"


def test_files_that_are_not_profiles_are_skipped(control: Control) -> None:
    folder = control.options.profiles
    (folder / "gone.json").symlink_to(folder / "nowhere.json")
    (folder / "folder.json").mkdir()
    (folder / "text.json").write_text("text", encoding="utf-8")
    file = profile(folder)
    profiles = Profiles(control)
    asyncio.run(profiles.look([TENANT]))
    known = profiles.of(TENANT)
    assert known is not None
    assert (known.file, known.how) == (file, "found")


def test_hanging_storage_does_not_delay_the_plan(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores_module, "machine_of", lambda cpus: Machine.even(len(cpus)))
    monkeypatch.setattr(cores_module, "_PROFILES_S", 0.1)
    answers = threading.Event()
    monkeypatch.setattr(profiles_module, "load_profile", lambda _: answers.wait(30))
    profile(control.options.profiles)
    cores = Cores(control, Totals(), Profiles(control))
    steps: list[float] = []
    monkeypatch.setattr(cores, "step", lambda: steps.append(time.monotonic()))

    async def run() -> None:
        looking = asyncio.create_task(cores.profiles.look([TENANT]))
        planning = asyncio.create_task(cores.run())
        async with asyncio.timeout(60):
            while not steps:
                await asyncio.sleep(0.05)
        assert not looking.done()
        planning.cancel()
        looking.cancel()
        answers.set()

    asyncio.run(run())


def test_a_recorded_profile_survives_a_search_that_began_earlier(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = profile(control.options.profiles)
    began, go_on = threading.Event(), threading.Event()
    load = profiles_module.load_profile

    def slow(path: str | Path) -> Profile:
        if not began.is_set():
            began.set()
            go_on.wait(30)
        return load(path)

    monkeypatch.setattr(profiles_module, "load_profile", slow)
    profiles = Profiles(control)

    async def run() -> None:
        looking = asyncio.create_task(profiles.look([TENANT]))
        await asyncio.to_thread(began.wait, 30)
        await profiles.record(TENANT.path, file, "checked")
        go_on.set()
        await looking

    asyncio.run(run())
    known = profiles.of(TENANT)
    assert known is not None
    assert known.how == "checked"


def test_a_given_profile_of_another_graph_is_ignored(
    control: Control, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = profile(tmp_path, "given")
    profiles = Profiles(control)
    version = replace(TENANT, profile=str(given))
    asyncio.run(profiles.look([version]))
    known = profiles.of(version)
    assert known is not None
    assert known.how == "given"
    # What graph-tools made of it has another graph.
    for module in (profiles_module, gate_module):
        monkeypatch.setattr(module, "fingerprint", lambda _: "f" * 16)
    optimized = replace(version, path="/artefacts/3")
    for _ in range(3):
        asyncio.run(profiles.look([optimized]))
        profile(control.options.profiles, us=200.0)
    assert profiles.of(optimized) is None, "it is measured"
    events = [event for event in control.repository.events() if event.kind == "profile"]
    assert len(events) == 1
    assert f"of graph {GRAPH}, expected {'f' * 16}" in events[0].message
