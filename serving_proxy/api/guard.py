# SPDX-License-Identifier: Apache-2.0
"""Routes of the guard, the history, the machine and the request log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from serving_proxy.api.errors import RESPONSES
from serving_proxy.api.requests import Body
from serving_proxy.api.routes import Name
from serving_proxy.control.plane import Plane
from serving_proxy.cores.views import MachineView
from serving_proxy.counters.history import PERIOD_S
from serving_proxy.counters.views import HistoryView, history_view
from serving_proxy.experiments.traffic import to_weight
from serving_proxy.guard.loop import with_settings
from serving_proxy.guard.views import GuardView, guard_view
from serving_proxy.records.guard_settings import GuardSettings
from serving_proxy.records.models import RequestLog
from serving_proxy.request_log.operations import MergedView, RequestLogView


class RequestLogBody(Body):
    """How many percent of the requests are written down; null or 0: none."""

    sample: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = None
    max_bytes: Annotated[int, Field(ge=4096, le=2**40)] = 16 * 1024 * 1024
    max_files: Annotated[int, Field(ge=2, le=1000)] = 8

    def wanted(self) -> RequestLog | None:
        """Return what the control plane is asked for."""
        weight = to_weight(self.sample or 0.0)
        return RequestLog(sample=weight, max_bytes=self.max_bytes, max_files=self.max_files) if weight else None


def watch_routes(plane: Plane) -> APIRouter:
    """Make the routes."""
    router = APIRouter(prefix="/v1", responses=RESPONSES)
    _add_guard(router, plane)
    _add_log(router, plane)

    @router.get("/history", tags=["proxy"])
    async def history() -> HistoryView:
        """Show request rates and latencies of the last minutes."""
        return history_view(plane.history.lines(), PERIOD_S)

    @router.get("/machine", tags=["proxy"])
    async def machine() -> MachineView:
        """Show the CPUs of the machine, and which version has them."""
        return plane.observer.machine()

    return router


def _add_guard(router: APIRouter, plane: Plane) -> None:
    def shown(name: str) -> GuardView:
        return guard_view(plane.control.model(name), plane.guard.watched(name))

    @router.get("/models/{name}/guard", tags=["models"])
    async def guard(name: Name) -> GuardView:
        """Show a model's limits, and what the guard says of its versions."""
        return shown(name)

    @router.patch("/models/{name}/guard", tags=["models"])
    async def change_guard(name: Name, body: GuardSettings) -> GuardView:
        """Change some of a model's limits; what is not named stays as it is."""
        model = plane.control.model(name)
        changed = model.guard.model_copy(update=body.model_dump(exclude_unset=True))
        plane.control.commit(with_settings(model, changed))
        return shown(name)


def _add_log(router: APIRouter, plane: Plane) -> None:
    logs = plane.request_logs

    @router.get("/models/{name}/request_log", tags=["models"])
    async def request_log(name: Name) -> RequestLogView:
        """Show what hosts write down of a model's requests."""
        return await logs.show(name)

    @router.put("/models/{name}/request_log", tags=["models"])
    async def change_request_log(name: Name, body: RequestLogBody) -> RequestLogView:
        """Let hosts write down a share of a model's requests, or none."""
        logs.configure(name, body.wanted())
        return await logs.show(name)

    @router.delete("/models/{name}/request_log", tags=["models"])
    async def delete_request_log(name: Name) -> RequestLogView:
        """Remove the requests that were written down."""
        await logs.delete(name)
        return await logs.show(name)

    @router.post("/models/{name}/request_log/merge", tags=["models"])
    async def merge_request_log(name: Name) -> MergedView:
        """Put the newest requests into one file, for a warm-up or for `graph-tools verify`."""
        merged = await logs.merge(name)
        return MergedView(path=str(merged.path), records=merged.records, bytes=merged.bytes)
