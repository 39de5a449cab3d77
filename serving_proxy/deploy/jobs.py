# SPDX-License-Identifier: Apache-2.0
"""Long operations: what they are doing, whether they have ended, and a way to cancel them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from serving_proxy.errors import NotFoundError, ProxyError
from serving_proxy.store import JobRow, Repository
from serving_proxy.store.event_feed import EventFeed

log = logging.getLogger("serving_proxy.jobs")


@dataclass
class Job:
    """A long operation.

    Attributes
    ----------
    deployed_at : float
        Of the version that it is about: what is deployed again later under its number is another.
    step : str
        What it does now.
    done, total, unit
        How far that is; total None: not known.
    """

    row: JobRow
    deployed_at: float = 0.0
    step: str = ""
    done: int = 0
    total: int | None = None
    unit: str = ""
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def cancelling(self) -> bool:
        """Whether it was cancelled, and is cleaning up."""
        return self.task is not None and self.task.cancelling() > 0

    def cancel(self) -> None:
        """Cancel it; once more does nothing, it would only interrupt the cleaning up."""
        if self.task is not None and not self.task.done() and not self.cancelling:
            self.task.cancel()

    def told(self, step: str, done: int = 0, total: int | None = None, unit: str = "") -> None:
        """Say what it does now."""
        self.step, self.done, self.total, self.unit = step, done, total, unit

    def to_json(self) -> dict[str, Any]:
        """Return it as the API shows it."""
        row = self.row
        return {
            "id": row.id,
            "kind": row.kind,
            "model": row.model,
            "version": row.version,
            "state": row.state,
            "error": row.error or None,
            "step": self.step,
            "done": self.done,
            "total": self.total,
            "unit": self.unit,
            "created": row.created,
            "finished": row.finished,
        }


Work = Callable[[Job], Awaitable[None]]


class Jobs:
    """All jobs of a proxy; those that run are tasks of its event loop."""

    def __init__(self, repository: Repository, feed: EventFeed) -> None:
        self._repository = repository
        self._feed = feed
        self._running: dict[int, Job] = {}
        self._closing = False

    def begin(
        self, kind: str, model: str, version: int, work: Work, row: JobRow | None = None, deployed_at: float = 0.0
    ) -> Job:
        """Start a job, or go on with one that a former proxy had started."""
        job = Job(row or self._repository.add_job(kind, model, version), deployed_at)
        self._running[job.row.id] = job
        job.task = asyncio.create_task(self._run(job, work), name=f"{kind} {model}/{version}")
        return job

    def running(self, model: str | None = None, version: int | None = None) -> list[Job]:
        """Return the jobs that run, of a model or a version."""
        return [
            job
            for job in self._running.values()
            if (model is None or job.row.model == model) and (version is None or job.row.version == version)
        ]

    def get(self, number: int) -> Job:
        """Return a job.

        Raises
        ------
        NotFoundError
        """
        job = self._running.get(number)
        row = None if job is not None else self._repository.job(number)
        if job is None and row is None:
            raise NotFoundError(f"job {number}: unknown, expected one of the last ones")
        return job or Job(row)  # type: ignore[arg-type]

    def list(self, limit: int = 100) -> list[Job]:
        """Return jobs, the newest first."""
        return [self._running.get(row.id) or Job(row) for row in self._repository.jobs(limit=limit)]

    async def cancel(self, number: int) -> Job:
        """End a job, and wait until it has cleaned up; one that has ended stays as it is."""
        job = self.get(number)
        if job.task is not None and not job.task.done():
            job.cancel()
            await asyncio.wait([job.task])
        return self.get(number)

    async def close(self) -> None:
        """Interrupt all jobs; the next proxy goes on with them."""
        self._closing = True
        tasks = [job.task for job in self._running.values() if job.task is not None]
        for job in list(self._running.values()):
            job.cancel()
        if tasks:
            await asyncio.wait(tasks)

    @property
    def closing(self) -> bool:
        """Whether jobs are interrupted because the proxy goes down, and not cancelled by somebody."""
        return self._closing

    async def _run(self, job: Job, work: Work) -> None:
        state, error = "succeeded", ""
        try:
            await work(job)
        except asyncio.CancelledError:
            if self._closing:
                return
            state, error = "cancelled", "cancelled"
        except ProxyError as failure:
            state, error = "failed", str(failure)
        except Exception as failure:
            log.exception("%s of %s/%s", job.row.kind, job.row.model, job.row.version)
            state, error = "failed", f"{type(failure).__name__}: {failure}"
        finally:
            self._running.pop(job.row.id, None)
        self._finish(job, state, error)

    def _finish(self, job: Job, state: str, error: str) -> None:
        try:
            self._repository.finish_job(job.row.id, state, error)
        except ProxyError:
            # A full disk: the job is found running after a restart, and ends at once then.
            log.exception("job %s", job.row.id)
        values = {**vars(job.row), "state": state, "error": error, "finished": time.time()}
        job.row = JobRow(**values)
        self._feed.changed()
