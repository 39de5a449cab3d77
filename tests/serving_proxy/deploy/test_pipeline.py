# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.lifecycle_records import host
from helpers.proxies.proxy_runs import write_model
from serving_proxy.deploy import jobs, pipeline
from serving_proxy.deploy.changes import undeploy
from serving_proxy.deploy.control import Control, ControlOptions
from serving_proxy.deploy.deployment import Deployment, deploy
from serving_proxy.deploy.jobs import Job, Jobs
from serving_proxy.deploy.pipeline import DeployPipeline
from serving_proxy.errors import ExhaustedError
from serving_proxy.records.models import Model, Version
from serving_proxy.records.states import State
from serving_proxy.store import Database, Repository


class Place:
    """The gates of a control plane without hosts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = Database(folder / "db")
        self.control = Control(ControlOptions(folder), Repository(self.database))
        self.jobs = Jobs(self.control.repository, self.control.feed)
        self.pipeline = DeployPipeline(self.control, self.jobs)

    def deploy(self, optimize: str | None = None) -> None:
        """Enter version 3."""
        source = str(write_model(self.folder / "3"))
        asked = Deployment(source=source, number=3, stamp="s", optimize=optimize)
        model = self.control.models.get("ranking") or Model(name="ranking")
        self.control.commit(deploy(model, asked, (), time.time())[0])

    @property
    def version(self) -> Version:
        return self.control.model("ranking").versions[3]

    async def becomes(self, state: State) -> None:
        """Wait for a state of version 3."""
        async with asyncio.timeout(60):
            while self.version.state != state:
                await asyncio.sleep(0.01)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.database.close()


def test_a_fault_in_a_gate_fails_the_version(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a fault")

    async def run() -> None:
        monkeypatch.setattr(pipeline, "validate", fail)
        place.deploy()
        place.pipeline.begin("ranking", 3)
        await place.becomes(State.FAILED)
        assert place.version.reason == "ZeroDivisionError: a fault"
        await place.jobs.close()

    asyncio.run(run())


@pytest.mark.parametrize("state", [State.NEW, State.VALIDATING])
def test_a_version_without_a_job_is_picked_up(place: Place, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ExhaustedError("the disk is full")

    async def run() -> None:
        place.deploy()
        with monkeypatch.context() as patch, pytest.raises(ExhaustedError):
            patch.setattr(place.control.repository, "add_job", fail)
            place.pipeline.begin("ranking", 3)
        model = place.control.model("ranking")
        place.control.store([model.with_version(place.version.model_copy(update={"state": state}))])
        place.pipeline.pick_up()
        place.pipeline.pick_up()
        assert len(place.jobs.running()) == 1
        await place.becomes(State.LOADING)
        await place.jobs.close()

    asyncio.run(run())


def test_a_job_reports_waiting_only_while_it_waits(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Heard(Job):
        def report(self, step: str, *more: Any) -> None:
            said.append(step)
            super().report(step, *more)

    async def says(step: str) -> None:
        async with asyncio.timeout(60):
            while step not in said:
                await asyncio.sleep(0.01)

    monkeypatch.setattr(jobs, "Job", Heard)

    async def run() -> None:
        place.deploy(optimize="fp32")
        async with place.pipeline.optimizing:
            place.pipeline.begin("ranking", 3)
            await says("waiting for another optimization")
            assert "waiting for other validations" not in said
        # From the first moment on, and not from the worker's first word.
        await says("optimizing")
        await place.jobs.close()

    asyncio.run(run())


def test_a_version_that_is_deployed_again_has_a_job_of_its_own(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, validate = threading.Event(), pipeline.validate

    def wait_and_validate(*arguments: Any, **options: Any) -> Any:
        ended.wait(60)
        return validate(*arguments, **options)

    async def run() -> None:
        monkeypatch.setattr(pipeline, "validate", wait_and_validate)
        place.deploy()
        first = place.pipeline.begin("ranking", 3)
        assert place.pipeline.begin("ranking", 3) is first
        await place.becomes(State.VALIDATING)
        place.control.commit(undeploy(place.control.model("ranking"), 3, time.time()))
        first.cancel()
        place.deploy()
        second = place.pipeline.begin("ranking", 3)
        assert second is not first
        ended.set()
        await place.becomes(State.LOADING)
        await place.jobs.close()
        assert place.version.state == State.LOADING

    asyncio.run(run())


def test_an_earlier_failure_that_a_host_still_reports_is_waited_for(place: Place) -> None:
    async def run() -> None:
        place.control.hosts = (host({3: "failed: no memory"}),)
        place.deploy()
        job = place.pipeline.begin("ranking", 3)
        async with asyncio.timeout(60):
            while job.step != "waiting for hosts to unload the failed version":
                await asyncio.sleep(0.01)
        # A host on a busy machine takes longer than one that has nothing else to do.
        await asyncio.sleep(0.1)
        assert place.version.state == State.VALIDATING
        place.control.hosts = ()
        await place.becomes(State.LOADING)
        await place.jobs.close()

    asyncio.run(run())


def test_a_failure_on_a_host_that_refuses_the_desired_state_is_not_waited_for(place: Place) -> None:
    async def run() -> None:
        place.control.hosts = (host({3: "failed: no memory"}, desired_error="models: too many"),)
        place.deploy()
        job = place.pipeline.begin("ranking", 3)
        async with asyncio.timeout(60):
            while place.version.state != State.LOADING:
                assert job.step != "waiting for hosts to unload the failed version"
                await asyncio.sleep(0.01)
        await place.jobs.close()

    asyncio.run(run())


def test_a_second_cancel_leaves_the_cleaning_up_alone(place: Place) -> None:
    async def run() -> None:
        cleaned = asyncio.Event()

        async def work(_: object) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.1)
                cleaned.set()

        job = place.jobs.begin("deploy", "ranking", 3, work)
        await asyncio.sleep(0)
        await asyncio.gather(place.jobs.cancel(job.row.id), place.jobs.cancel(job.row.id))
        assert cleaned.is_set()
        assert place.jobs.get(job.row.id).row.state == "cancelled"

    asyncio.run(run())
