# SPDX-License-Identifier: Apache-2.0
"""Routes of the placement: which machines have which models."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from serving_proxy.api.errors import RESPONSES
from serving_proxy.api.requests import Body
from serving_proxy.control.plane import Plane
from serving_proxy.errors import PreconditionError
from serving_proxy.fleet.placement_views import PlacementView
from serving_proxy.fleet.placements import Placements


class PlacementBody(Body):
    """A placement, and how long machines keep a model that has moved."""

    placement: dict[str, Any]
    handover_s: Annotated[float, Field(ge=0, le=86400, allow_inf_nan=False)] = 30.0


def placement_routes(plane: Plane) -> APIRouter:
    """Make the routes."""
    router = APIRouter(prefix="/v1", responses=RESPONSES, tags=["placement"])

    def placements() -> Placements:
        if plane.fleet is None:
            raise PreconditionError("placement: hosts run on the machine of the proxy, expected --engine agents or ray")
        return plane.fleet.placements

    @router.get("/placement")
    async def placement() -> PlacementView:
        """Show which machines have which models, and what moves."""
        return placements().view()

    @router.put("/placement")
    async def apply(body: PlacementBody) -> PlacementView:
        """Put a placement of `cost-model place --json` into force; models are loaded before others unload them."""
        return placements().apply(body.placement, body.handover_s)

    @router.delete("/placement")
    async def clear() -> PlacementView:
        """Put all models on all machines."""
        return placements().clear()

    return router
