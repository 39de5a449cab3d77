# SPDX-License-Identifier: Apache-2.0
"""Long operations: their progress, their result, and a way to cancel them."""

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
        When its version was deployed: a later deployment under the same number is another version.
    step : str
        The current step.
    done, total, unit
        Progress of the step; total None: not known.
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
        """Return whether the job was cancelled and is cleaning up."""
        return self.task is not None and self.task.cancelling() > 0

    def cancel(self) -> None:
        """Cancel the job; a second call does nothing, because it would only interrupt the cleanup."""
        if self.task is not None and not self.task.done() and not self.cancelling:
            self.task.cancel()

    def report(self, step: str, done: int = 0, total: int | None = None, unit: str = "") -> None:
        """Set the current step and its progress."""
        self.step, self.done, self.total, self.unit = step, done, total, unit

    def to_json(self) -> dict[str, Any]:
        """Return the job as the API shows it."""
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
    """All jobs of a proxy; running jobs are tasks of its event loop."""

    def __init__(self, repository: Repository, feed: EventFeed) -> None:
        self._repository = repository
        self._feed = feed
        self._running: dict[int, Job] = {}
        self._closing = False

    def begin(
        self, kind: str, model: str, version: int, work: Work, row: JobRow | None = None, deployed_at: float = 0.0
    ) -> Job:
        """Start a job, or continue one that an earlier proxy process had started."""
        job = Job(row or self._repository.add_job(kind, model, version), deployed_at)
        self._running[job.row.id] = job
        job.task = asyncio.create_task(self._run(job, work), name=f"{kind} {model}/{version}")
        return job

    def running(self, model: str | None = None, version: int | None = None) -> list[Job]:
        """Return the running jobs, of all models or of one model or version."""
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
            raise NotFoundError(f"job {number}: unknown, expected one of the latest jobs")
        return job or Job(row)  # type: ignore[arg-type]

    def list(self, limit: int = 100) -> list[Job]:
        """Return jobs, the newest first."""
        return [self._running.get(row.id) or Job(row) for row in self._repository.jobs(limit=limit)]

    async def cancel(self, number: int) -> Job:
        """Cancel a job and wait until it has cleaned up; a finished job stays as it is."""
        job = self.get(number)
        if job.task is not None and not job.task.done():
            job.cancel()
            await asyncio.wait([job.task])
        return self.get(number)

    async def close(self) -> None:
        """Interrupt all jobs; the next proxy process continues them."""
        self._closing = True
        tasks = [job.task for job in self._running.values() if job.task is not None]
        for job in list(self._running.values()):
            job.cancel()
        if tasks:
            await asyncio.wait(tasks)

    @property
    def closing(self) -> bool:
        """Return whether jobs are interrupted because the proxy shuts down, rather than cancelled by a user."""
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
            # The disk is full: after a restart the job is still recorded as running, and ends at once.
            log.exception("job %s", job.row.id)
        values = {**vars(job.row), "state": state, "error": error, "finished": time.time()}
        job.row = JobRow(**values)
        self._feed.changed()
