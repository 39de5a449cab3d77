# SPDX-License-Identifier: Apache-2.0
"""Take a deployed version through the gates: validation, optimization, and the wait until hosts have it."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from serving_proxy.deploy.changes import Change, move, stop
from serving_proxy.deploy.control import Control
from serving_proxy.deploy.epochs import hosts_that_lack
from serving_proxy.deploy.jobs import Job, Jobs, Work
from serving_proxy.deploy.remote_models import known_fingerprint
from serving_proxy.deploy.reuse import made_before, read_before
from serving_proxy.errors import CancelledError, ExhaustedError, PreconditionError, ProxyError, UnavailableError
from serving_proxy.gates.hashing import fingerprint_apart
from serving_proxy.gates.saved_model import Signatures, check_live, own_ops, read_meta_graph, signatures_of
from serving_proxy.gates.validation import Validated, check_signatures, validate
from serving_proxy.records.hosts import failed_anywhere
from serving_proxy.records.models import Version
from serving_proxy.records.states import GATED, State
from serving_proxy.store import JobRow
from serving_proxy.workers.optimize import optimize

PERIOD_S = 5.0
_VALIDATIONS = 2
_WAITING_S = 5.0
_FULL_DISK_S = 2.0
# A host that is busy, or hangs until it is killed, still reports the failure of an earlier version for a while.
_LONGEST_FORGETTING_S = 60.0
# Hosts report once a second what they follow.
_REPORT_PERIOD_S = 0.1
_LONGEST_REPORT_S = 20.0

_T = TypeVar("_T")
Cancelled = Callable[[], bool]
Told = Callable[[int, int], None]


class DeployPipeline:
    """Runs the jobs of versions that are not ready yet."""

    def __init__(self, control: Control, jobs: Jobs) -> None:
        self._control = control
        self._jobs = jobs
        self._validations = asyncio.Semaphore(_VALIDATIONS)
        # Models that were fetched from stores for jobs that run.
        self.fetched: dict[int, Path] = {}
        # Memory suffices for one optimization at a time. The lock is also held while artifacts and tables are removed.
        self.optimizing = asyncio.Lock()

    def begin(self, name: str, number: int) -> Job:
        """Take a version through the gates; if a job already does, return that job."""
        version = self._version(name, number)
        for job in self._jobs.running(name, number):
            if job.deployed_at == version.deployed_at and not job.cancelling:
                return job
        return self._start(name, version)

    async def run(self) -> None:
        """Look for versions without a job until the task is cancelled."""
        while True:
            with self._control.recording_faults("gates"):
                self.pick_up()
            await asyncio.sleep(PERIOD_S)

    def pick_up(self) -> None:
        """Begin jobs for versions that have none, for example because the disk was full when they were to begin."""
        if self._control.closing:
            return
        for name, model in list(self._control.models.items()):
            for number, version in list(model.versions.items()):
                jobs = self._jobs.running(name, number)
                if version.state in GATED and not any(job.deployed_at == version.deployed_at for job in jobs):
                    self._reset_to_new(name, version, "its job had stopped")
                    self._start(name, version)

    def resume(self) -> None:
        """Continue the jobs of an earlier proxy process."""
        left = self._control.repository.jobs(running=True)
        rows = {(row.model, row.version): row for row in left if row.kind == "deploy"}
        for other in left:
            if other.kind != "deploy":
                self._control.repository.finish_job(
                    other.id, "cancelled", "the proxy was restarted; a new job continues"
                )
        for name, model in list(self._control.models.items()):
            for number, version in list(model.versions.items()):
                row = rows.pop((name, number), None)
                self._reset_to_new(name, version, "the proxy was restarted")
                if version.state in GATED or (row is not None and version.active):
                    self._start(name, version, row)
        for row in rows.values():
            self._control.repository.finish_job(row.id, "cancelled", "the version is no longer deployed")

    def artifact(self, name: str, version: Version) -> Path:
        """Return the folder of a version's optimized model."""
        return self._control.options.artifacts / name / f"{version.number}-{int(version.deployed_at * 1000):x}"

    def _reset_to_new(self, name: str, version: Version, reason: str) -> None:
        """Set a version that is in the gates back to `new`."""
        if version.state in GATED - {State.NEW}:
            change = move(self._control.model(name), version.number, State.NEW, version.since, reason)
            self._control.store([change.model], change.notes)

    def _start(self, name: str, version: Version, row: JobRow | None = None) -> Job:
        work = self._work(name, version)
        return self._jobs.begin("deploy", name, version.number, work, row, version.deployed_at)

    def _work(self, name: str, version: Version) -> Work:
        return lambda job: self._run(job, name, version.deployed_at)

    async def _run(self, job: Job, name: str, deployed_at: float) -> None:
        number = job.row.version
        try:
            if self._current_version(name, number, deployed_at).state in GATED:
                await self._pass_gates(job, name, number, deployed_at)
            await self._wait_until_loaded(job, name, number, deployed_at)
        except asyncio.CancelledError:
            if not self._jobs.closing:
                self._give_up(name, number, deployed_at)
            raise
        except ProxyError as error:
            await self._fail(job, name, number, deployed_at, str(error), error.status)
            raise
        except Exception as error:
            # A bug of the proxy, or storage that fails in a way that no gate expects.
            await self._fail(job, name, number, deployed_at, f"{type(error).__name__}: {error}", "UNKNOWN")
            raise
        finally:
            self.fetched.pop(job.row.id, None)

    async def _pass_gates(self, job: Job, name: str, number: int, deployed_at: float) -> None:
        if self._validations.locked():
            job.report("waiting for other validations")
        async with self._validations:
            await self._move(job, name, number, deployed_at, State.VALIDATING)
            found = await self._validate(job, name, number, deployed_at)
        version = self._current_version(name, number, deployed_at)
        if version.optimize is not None:
            if self.optimizing.locked():
                job.report("waiting for another optimization")
            async with self.optimizing:
                job.report("optimizing")
                await self._move(job, name, number, deployed_at, State.OPTIMIZING)
                path = await self._optimize(job, name, version, found.path)
            graph = await asyncio.to_thread(read_meta_graph, path)
            signatures = signatures_of(path, graph)
            # The hash that is shown must be that of the served files.
            work = partial(fingerprint_apart, path, known=read_before(self._control.models))
            files = await self._in_thread(job, "reading the optimized model", work)
            found = replace(found, path=path, signatures=signatures, files=files, own_ops=own_ops(graph))
            expected = self._expected_signatures(name, version)
            if expected is not None:
                check_signatures(str(path), expected, signatures)
        elif version.settings.follow is not None:
            await asyncio.to_thread(check_live, found.path)
        stored = await self._stored(job, name, version, found)
        await self._wait_until_forgotten(job, name, number, deployed_at)
        await self._admit(job, name, number, deployed_at, found, stored)

    async def _wait_until_forgotten(self, job: Job, name: str, number: int, deployed_at: float) -> None:
        """Wait until no host that follows the desired state reports an earlier failure under this number.

        Hosts retry the same entry only after it was removed, and what they report of the earlier version says nothing
        about this one.
        """
        end = time.monotonic() + _LONGEST_FORGETTING_S
        while failed_anywhere(self._control.hosts, name, number) and time.monotonic() < end:
            job.report("waiting for hosts to unload the failed version")
            self._current_version(name, number, deployed_at)
            await asyncio.sleep(0.02)

    async def _validate(self, job: Job, name: str, number: int, deployed_at: float) -> Validated:
        version = self._current_version(name, number, deployed_at)
        expected = self._expected_signatures(name, version)
        allowed = {*self._control.options.allowed_ops, *version.allowed_ops}
        source, known = version.source, read_before(self._control.models)
        url = self._control.remote.place(source)
        if url is not None:
            fetch = partial(self._control.remote.fetch, url)
            fetched = await self._in_thread(job, "fetching", lambda cancelled, told, _: fetch(cancelled, told))
            self.fetched[job.row.id] = fetched.path
            source, known = str(fetched.path), known | known_fingerprint(fetched)
        work = partial(validate, source, self._control.remote.roots(), expected, allowed_ops=allowed, known=known)
        return await self._in_thread(job, "validating", work)

    async def _stored(self, job: Job, name: str, version: Version, found: Validated) -> str | None:
        """Return the URL of what is served, for other machines; put it into the model store if it is in none."""
        if version.optimize is None and self._control.remote.place(version.source) is not None:
            return version.source
        if self._control.options.stores.store is None:
            return None
        put = partial(self._control.remote.put, name, version.number, found.path, found.files)
        return await self._in_thread(job, "uploading", lambda cancelled, told, _: put(cancelled, told))

    async def _in_thread(self, job: Job, step: str, work: Callable[[Cancelled, Told, str | None], _T]) -> _T:
        """Read files of a model on a thread, which checks whether it is cancelled and reports its progress."""
        cancelled = False
        job.report(step)
        try:
            return await asyncio.to_thread(
                work,
                lambda: cancelled,
                lambda done, total: job.report(step, done, total, "bytes"),
                self._control.options.host_settings.maintenance_cpus,
            )
        finally:
            # The thread cannot be stopped from outside; it checks this flag.
            cancelled = True

    async def _optimize(self, job: Job, name: str, version: Version, source: Path) -> Path:
        options = self._control.options
        made = made_before(self._control.models, version)
        if made is not None:
            return made
        target = self.artifact(name, version)
        await asyncio.to_thread(shutil.rmtree, target, True)
        target.parent.mkdir(parents=True, exist_ok=True)
        await optimize(
            source,
            target,
            precision=version.optimize or "auto",
            table_store=options.tables,
            report=target.with_suffix(".json"),
            requests=Path(version.settings.warmup_file) if version.settings.warmup_file else None,
            live=version.settings.follow is not None,
            cpus=self._control.host_settings.maintenance_cpus,
            progress=lambda step, done, total, unit: job.report(f"optimizing: {step}", done, total, unit),
        )
        return target.resolve(strict=True)

    async def _wait_until_loaded(self, job: Job, name: str, number: int, deployed_at: float) -> None:
        """Wait until every host has the version and follows its timeline.

        Raises
        ------
        PreconditionError
            A host cannot load it, and every other one has tried it; or a host does not report its timeline in time.
        """
        while True:
            version = self._current_version(name, number, deployed_at)
            if version.state == State.READY:
                await self._wait_until_followed(job, name, number, deployed_at)
                return
            if version.state == State.FAILED:
                raise PreconditionError(f"{name}/{number}: {version.reason}")
            job.report(str(version.state) + (f", {version.reason}" if version.reason else ""))
            await self._control.feed.change(_WAITING_S)

    async def _wait_until_followed(self, job: Job, name: str, number: int, deployed_at: float) -> None:
        """Wait until every host has read the timeline of a version, if it follows one."""
        end = time.monotonic() + _LONGEST_REPORT_S
        while True:
            version = self._current_version(name, number, deployed_at)
            timeline = version.settings.follow
            if timeline is None or version.state != State.READY:
                return
            missing = hosts_that_lack(self._control.hosts_for(name, number), name, number, timeline)
            if not missing:
                return
            if time.monotonic() >= end:
                raise PreconditionError(
                    f"{name}/{number}: ready, but {', '.join(missing)} does not report {timeline}, expected its epoch"
                )
            job.report(f"waiting until {', '.join(missing)} follows {timeline}")
            await asyncio.sleep(_REPORT_PERIOD_S)

    def _version(self, name: str, number: int) -> Version:
        return self._control.model(name).versions[number]

    def _current_version(self, name: str, number: int, deployed_at: float) -> Version:
        """Return the version if it is still the one that the job is about."""
        version = self._control.model(name).versions.get(number)
        gone = version is None or version.deployed_at != deployed_at
        if version is None or gone or version.state in {State.DRAINING, State.STOPPED}:
            raise CancelledError(f"{name}/{number}: undeployed")
        return version

    def _expected_signatures(self, name: str, version: Version) -> Signatures | None:
        """Return the signatures that clients of the model rely on."""
        model = self._control.model(name)
        if version.other_signature or model.baseline in {None, version.number}:
            return None
        baseline = model.versions[model.baseline] if model.baseline is not None else None
        return None if baseline is None else baseline.signatures

    async def _move(
        self,
        job: Job,
        name: str,
        number: int,
        deployed_at: float,
        state: State,
        reason: str = "",
        failure: str = "",
    ) -> None:
        def move_version() -> Change:
            self._current_version(name, number, deployed_at)
            return move(self._control.model(name), number, state, time.time(), reason, failure)

        await self._write(job, move_version)

    async def _admit(
        self, job: Job, name: str, number: int, deployed_at: float, found: Validated, stored: str | None
    ) -> None:
        files = found.files

        def admit_version() -> Change:
            self._current_version(name, number, deployed_at)
            change = move(self._control.model(name), number, State.LOADING, time.time())
            values: dict[str, Any] = {"path": str(found.path), "signatures": found.signatures, "ops": found.ops}
            values |= {"sha256": files.sha256, "bytes": files.bytes, "seal": files.seal, "stored": stored}
            values |= {"needs": tuple(f"op:{name}" for name in found.own_ops)}
            return Change(
                change.model.with_version(change.model.versions[number].model_copy(update=values)), change.notes
            )

        await self._write(job, admit_version)

    async def _write(self, job: Job, make_change: Callable[[], Change]) -> None:
        """Write a change; wait while the disk is full or the database is locked.

        Waiting keeps the work that has been done so far.
        """
        while True:
            try:
                self._control.commit(make_change())
                return
            except (ExhaustedError, UnavailableError) as error:
                job.report(f"waiting: {error}")
                await asyncio.sleep(_FULL_DISK_S)

    async def _fail(self, job: Job, name: str, number: int, deployed_at: float, reason: str, failure: str) -> None:
        model = self._control.models.get(name)
        version = None if model is None else model.versions.get(number)
        if version is not None and version.deployed_at == deployed_at and version.state in GATED:
            await self._move(job, name, number, deployed_at, State.FAILED, reason, failure)

    def _give_up(self, name: str, number: int, deployed_at: float) -> None:
        """Take out a version whose job was cancelled, unless it is ready."""
        model = self._control.model(name)
        version = model.versions.get(number)
        if version is None or version.deployed_at != deployed_at or version.state == State.READY:
            return
        if version.active:
            self._control.commit(stop(model, number, time.time(), "cancelled"))
