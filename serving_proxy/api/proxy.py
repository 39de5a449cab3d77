# SPDX-License-Identifier: Apache-2.0
"""Routes of the proxy as a whole: its status, events and jobs, its hosts, and the machine."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from serving_proxy.api.errors import RESPONSES
from serving_proxy.api.parameters import After, Limit, Name
from serving_proxy.api.requests import DrainBody
from serving_proxy.control.plane import Plane
from serving_proxy.control.views import EventView, StatusView, event_view
from serving_proxy.control.workload import WorkloadView, measured_workload
from serving_proxy.cores.views import MachineView
from serving_proxy.counters.history import PERIOD_S
from serving_proxy.counters.views import HistoryView, history_view
from serving_proxy.deploy.views import JobView, job_view
from serving_proxy.hosts.views import HostView


def proxy_routes(plane: Plane) -> APIRouter:
    """Make the routes."""
    router = APIRouter(prefix="/v1", responses=RESPONSES, tags=["proxy"])
    _add_jobs(router, plane)

    @router.get("/status")
    async def status() -> StatusView:
        """Show hosts, models and running jobs."""
        return plane.status()

    @router.get("/events")
    async def events(after: After = 0, model: Name | None = None, limit: Limit = 100) -> list[EventView]:
        """Show events by rising id: those after an id, or the newest ones."""
        found = plane.control.repository.events(after, model, limit, newest=after == 0)
        return [event_view(event) for event in found]

    @router.post("/drain")
    async def drain(body: DrainBody) -> list[HostView]:
        """Stop hosts after their last requests, or let them start again."""
        plane.drain(body.host, body.drain)
        return plane.supervisor.views()

    @router.get("/history")
    async def history() -> HistoryView:
        """Show request rates and latencies of the last minutes."""
        return history_view(plane.history.lines(), PERIOD_S)

    @router.get("/workload")
    async def workload() -> WorkloadView:
        """Show a workload file of `cost-model place` with the measured rates and service times."""
        control = plane.control
        return measured_workload(control.models, control.hosts, plane.history.lines(), plane.totals.of)

    @router.get("/machine")
    async def machine() -> MachineView:
        """Show the CPUs of the machine, and which version runs on them."""
        return plane.observer.machine()

    return router


def _add_jobs(router: APIRouter, plane: Plane) -> None:
    @router.get("/jobs")
    async def jobs(limit: Limit = 100) -> list[JobView]:
        """Show long operations, the newest first."""
        return [job_view(job) for job in plane.jobs.list(limit)]

    @router.get("/jobs/{number}")
    async def job(number: Annotated[int, Path(ge=1, le=2**63 - 1)]) -> JobView:
        """Show a long operation."""
        return job_view(plane.jobs.get(number))

    @router.delete("/jobs/{number}")
    async def cancel(number: Annotated[int, Path(ge=1, le=2**63 - 1)]) -> JobView:
        """Cancel a long operation; a finished one stays as it is."""
        return job_view(await plane.jobs.cancel(number))
