# SPDX-License-Identifier: Apache-2.0
"""Routes of the guard."""

from __future__ import annotations

from fastapi import APIRouter

from serving_proxy.api.errors import RESPONSES
from serving_proxy.api.parameters import Name
from serving_proxy.control.plane import Plane
from serving_proxy.guard.loop import with_settings
from serving_proxy.guard.views import GuardView, guard_view
from serving_proxy.records.guard_settings import GuardSettings


def guard_routes(plane: Plane) -> APIRouter:
    """Make the routes."""
    router = APIRouter(prefix="/v1", responses=RESPONSES, tags=["models"])

    def shown(name: str) -> GuardView:
        return guard_view(plane.control.model(name), plane.guard.watched(name))

    @router.get("/models/{name}/guard")
    async def guard(name: Name) -> GuardView:
        """Show a model's limits, and the guard's verdicts on its versions."""
        return shown(name)

    @router.patch("/models/{name}/guard")
    async def change_guard(name: Name, body: GuardSettings) -> GuardView:
        """Change some of a model's limits; those that are not named stay as they are."""
        model = plane.control.model(name)
        changed = model.guard.model_copy(update=body.model_dump(exclude_unset=True))
        plane.control.commit(with_settings(model, changed))
        return shown(name)

    return router
