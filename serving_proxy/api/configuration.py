# SPDX-License-Identifier: Apache-2.0
"""Routes for configurations, and for loading and unloading models by name: requests that hosts forward."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request

from serving_proxy.api.errors import LATE, RESPONSES
from serving_proxy.api.parameters import Name, Wait
from serving_proxy.api.requests import Done, ReloadAnswer
from serving_proxy.control.plane import Plane
from serving_proxy.errors import InvalidError
from serving_proxy.sources.models_config import parse_reload, parse_text
from serving_proxy.sources.repository_requests import parse_body, parse_message

_TEXT = {"type": "string"}
_RELOAD: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"text/plain": {"schema": _TEXT}, "application/x-protobuf": {}}}
}
_REPOSITORY: dict[str, Any] = {
    "requestBody": {"required": False, "content": {"application/json": {}, "application/x-protobuf": {}}}
}


def configuration_routes(plane: Plane) -> APIRouter:
    """Make the routes."""
    router = APIRouter(prefix="/v1", responses=RESPONSES | LATE)
    _add_repository(router, plane)

    @router.post("/reload", tags=["proxy"], openapi_extra=_RELOAD)
    async def reload(request: Request, wait: Wait = 0.0) -> ReloadAnswer:
        """Replace the configuration by a `models.config`, or by the bytes of a `ReloadConfigRequest`.

        With `wait`, in seconds, the response comes once new models are available and labels have moved.
        """
        kind = _kind_of(request)
        data = await request.body()
        if kind == "application/x-protobuf":
            configured = parse_reload(data)
        elif kind == "text/plain":
            configured = parse_text(data.decode("utf-8", "replace"), "reload request")
        else:
            raise InvalidError(f"content-type: '{kind[:80]}', expected text/plain or application/x-protobuf")
        before = {model.name for model in plane.control.models.values() if model.policy is not None}
        plane.watcher.apply(configured)
        names = [model.name for model in configured]
        if wait > 0:
            await plane.availability.of_configured(configured, set(names) - before, wait)
        return ReloadAnswer(models=names)

    return router


def _add_repository(router: APIRouter, plane: Plane) -> None:
    @router.post("/repository/{verb}", tags=["models"], openapi_extra=_REPOSITORY)
    async def repository(
        verb: Literal["load", "unload"], request: Request, model: Name | None = None, wait: Wait = 0.0
    ) -> Done:
        """Load or unload a model by its name, as in the Open Inference Protocol.

        The body is a `RepositoryModelLoadRequest` or `RepositoryModelUnloadRequest`, or JSON together with `model`. The
        response comes once the model is available, or once no host accepts requests for it, or after `wait` seconds.
        """
        data = await request.body()
        if _kind_of(request) == "application/x-protobuf":
            name = parse_message(verb, data)
        else:
            parse_body(verb, data)
            name = model or ""
        if verb == "load":
            await plane.model_repository.load(name, wait)
        else:
            await plane.model_repository.unload(name, wait)
        return Done(model=name)


def _kind_of(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip()
