# SPDX-License-Identifier: Apache-2.0
"""Every verb as a route: convert, call, convert back."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request

from serving_proxy.api.errors import RESPONSES
from serving_proxy.api.requests import (
    DeployAnswer,
    DeployBody,
    Done,
    DrainBody,
    PauseBody,
    PromoteBody,
    RampBody,
    ReloadAnswer,
    TrafficBody,
    UndeployBody,
)
from serving_proxy.control.plane import Plane
from serving_proxy.control.views import EventView, StatusView, event_view
from serving_proxy.cores.views import core_lines
from serving_proxy.deploy.explain import explain
from serving_proxy.deploy.views import ExplainView, JobView, ModelView, job_view, model_view
from serving_proxy.errors import InvalidError
from serving_proxy.hosts.views import HostView
from serving_proxy.request_log.operations import LAST
from serving_proxy.sources.models_config import parse_reload, parse_text
from serving_proxy.sources.repository_requests import parse_body, parse_message

Name = Annotated[str, Path(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
Limit = Annotated[int, Query(ge=1, le=1000)]
After = Annotated[int, Query(ge=0, le=2**63 - 1)]
Wait = Annotated[float, Query(ge=0, le=86400)]
_TEXT = {"type": "string"}
_RELOAD = {
    "requestBody": {"required": True, "content": {"text/plain": {"schema": _TEXT}, "application/x-protobuf": {}}}
}

_REPOSITORY = {"requestBody": {"required": False, "content": {"application/json": {}, "application/x-protobuf": {}}}}


def routes(plane: Plane) -> APIRouter:
    """Make the routes of a control plane."""
    router = APIRouter(prefix="/v1", responses=RESPONSES)
    _add_models(router, plane)
    _add_rest(router, plane)
    return router


def _add_models(router: APIRouter, plane: Plane) -> None:
    operations = plane.operations

    def shown(name: str) -> ModelView:
        return model_view(plane.control.model(name), plane.control.hosts)

    @router.post("/models/{name}/deploy", status_code=202, tags=["models"])
    async def deploy(name: Name, body: DeployBody) -> DeployAnswer:
        """Deploy a version; the job in the answer carries it on.

        `warmup` may be `last`: the newest requests of the model's request log.
        """
        if body.warmup == LAST:
            file = await plane.request_logs.warm_up_file(name, body.path, body.version)
            body = body.model_copy(update={"warmup": file})
        done = await operations.deploy(name, body.deployment(body.path))
        job = None if done.job is None else job_view(done.job)
        return DeployAnswer(version=done.version, job=job, notes=list(done.notes), model=shown(name))

    @router.post("/models/{name}/undeploy", tags=["models"])
    async def undeploy(name: Name, body: UndeployBody) -> ModelView:
        """Take a version out after its last request, or the whole model."""
        operations.undeploy(name, body.version)
        return shown(name)

    @router.put("/models/{name}/traffic", tags=["models"])
    async def traffic(name: Name, body: TrafficBody) -> ModelView:
        """Split traffic between versions."""
        operations.traffic(name, body.weights)
        return shown(name)

    @router.post("/models/{name}/ramp", tags=["models"])
    async def ramp(name: Name, body: RampBody) -> ModelView:
        """Move a version's share to a percentage within some time."""
        operations.ramp(name, body.version, body.to, body.over_s)
        return shown(name)

    @router.post("/models/{name}/promote", tags=["models"])
    async def promote(name: Name, body: PromoteBody) -> ModelView:
        """Make a version the baseline once it is ready."""
        operations.promote(name, body.version)
        return shown(name)

    @router.post("/models/{name}/rollback", tags=["models"])
    async def rollback(name: Name) -> ModelView:
        """Send everything to the last good baseline."""
        operations.rollback(name)
        return shown(name)

    @router.post("/models/{name}/pause", tags=["models"])
    async def pause(name: Name, body: PauseBody) -> ModelView:
        """Turn the kill switch of a model's experiments."""
        operations.pause(name, body.paused)
        return shown(name)

    @router.get("/models/{name}/versions", tags=["models"])
    async def versions(name: Name) -> ModelView:
        """Show a model with all its versions, those that were undeployed as well."""
        return model_view(plane.control.model(name), plane.control.hosts, stopped=True)

    @router.get("/models/{name}/explain", tags=["models"])
    async def why(name: Name) -> ExplainView:
        """Say why a model is as it is."""
        model = plane.control.model(name)
        cores = core_lines(plane.cores, model)
        return explain(model, plane.control.hosts, plane.control.desired.generation, cores)


def _add_rest(router: APIRouter, plane: Plane) -> None:
    @router.get("/status", tags=["proxy"])
    async def status() -> StatusView:
        """Show hosts, models and what is being done."""
        return plane.status()

    @router.get("/events", tags=["proxy"])
    async def events(after: After = 0, model: Name | None = None, limit: Limit = 100) -> list[EventView]:
        """Show events by rising id: those after one, else the newest."""
        found = plane.control.repository.events(after, model, limit, newest=after == 0)
        return [event_view(one) for one in found]

    @router.get("/jobs", tags=["proxy"])
    async def jobs(limit: Limit = 100) -> list[JobView]:
        """Show long operations, the newest first."""
        return [job_view(one) for one in plane.jobs.list(limit)]

    @router.get("/jobs/{number}", tags=["proxy"])
    async def job(number: Annotated[int, Path(ge=1, le=2**63 - 1)]) -> JobView:
        """Show a long operation."""
        return job_view(plane.jobs.get(number))

    @router.delete("/jobs/{number}", tags=["proxy"])
    async def cancel(number: Annotated[int, Path(ge=1, le=2**63 - 1)]) -> JobView:
        """Cancel a long operation; one that has ended stays as it is."""
        return job_view(await plane.jobs.cancel(number))

    @router.post("/drain", tags=["proxy"])
    async def drain(body: DrainBody) -> list[HostView]:
        """Stop hosts after their last requests, or let them start again."""
        plane.supervisor.drain(body.host, body.drain)
        return plane.supervisor.views()

    @router.post("/reload", tags=["proxy"], openapi_extra=_RELOAD)
    async def reload(request: Request, wait: Wait = 0.0) -> ReloadAnswer:
        """Take a `models.config`, or the bytes of a `ReloadConfigRequest`, in the place of what was there before.

        With `wait`, in seconds, the answer comes once models that are new are available and labels have moved.
        """
        kind = _kind_of(request)
        data = await request.body()
        if kind == "application/x-protobuf":
            configured = parse_reload(data)
        elif kind == "text/plain":
            configured = parse_text(data.decode("utf-8", "replace"), "reload request")
        else:
            raise InvalidError(f"content-type: '{kind[:80]}', expected text/plain or application/x-protobuf")
        before = {one.name for one in plane.control.models.values() if one.policy is not None}
        plane.watcher.apply(configured)
        names = [one.name for one in configured]
        if wait > 0:
            await plane.availability.of_configured(configured, set(names) - before, wait)
        return ReloadAnswer(models=names)

    @router.post("/repository/{verb}", tags=["models"], openapi_extra=_REPOSITORY)
    async def repository(
        verb: Literal["load", "unload"], request: Request, model: Name | None = None, wait: Wait = 0.0
    ) -> Done:
        """Load or unload a model by its name, as the Open Inference Protocol has it.

        The body is a `RepositoryModelLoadRequest` or `RepositoryModelUnloadRequest`, or JSON beside `model`. It ends
        once the model is available, or no host takes requests for it any more, or with `wait`, in seconds.
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
