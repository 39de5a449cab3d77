# SPDX-License-Identifier: Apache-2.0
"""Routes of the request log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from serving_proxy.api.errors import RESPONSES
from serving_proxy.api.parameters import Name
from serving_proxy.api.requests import Body
from serving_proxy.control.plane import Plane
from serving_proxy.experiments.traffic import to_weight
from serving_proxy.records.models import RequestLog
from serving_proxy.request_log.operations import MergedView, RequestLogView


class RequestLogBody(Body):
    """Percentage of the requests to log; null or 0: none."""

    sample: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = None
    max_bytes: Annotated[int, Field(ge=4096, le=2**40)] = 16 * 1024 * 1024
    max_files: Annotated[int, Field(ge=2, le=1000)] = 8

    def wanted(self) -> RequestLog | None:
        """Return the settings for the control plane."""
        weight = to_weight(self.sample or 0.0)
        return RequestLog(sample=weight, max_bytes=self.max_bytes, max_files=self.max_files) if weight else None


def request_log_routes(plane: Plane) -> APIRouter:
    """Make the routes."""
    router = APIRouter(prefix="/v1", responses=RESPONSES, tags=["models"])
    logs = plane.request_logs

    @router.get("/models/{name}/request_log")
    async def request_log(name: Name) -> RequestLogView:
        """Show the request log of a model."""
        return await logs.show(name)

    @router.put("/models/{name}/request_log")
    async def change_request_log(name: Name, body: RequestLogBody) -> RequestLogView:
        """Let hosts log a share of a model's requests, or none."""
        logs.configure(name, body.wanted())
        return await logs.show(name)

    @router.delete("/models/{name}/request_log")
    async def delete_request_log(name: Name) -> RequestLogView:
        """Remove the logged requests."""
        await logs.delete(name)
        return await logs.show(name)

    @router.post("/models/{name}/request_log/merge")
    async def merge_request_log(name: Name) -> MergedView:
        """Merge the newest requests into one file, for a warm-up or for `graph-tools verify`."""
        return (await logs.merge(name)).view

    return router
