# SPDX-License-Identifier: Apache-2.0
"""Routes of models: deployments, shares and baselines, and the state of their versions."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter

from serving_proxy.api.errors import RESPONSES
from serving_proxy.api.parameters import Name
from serving_proxy.api.requests import (
    DeployAnswer,
    DeployBody,
    PauseBody,
    PromoteBody,
    RampBody,
    ResumeBody,
    RollbackBody,
    TrafficBody,
    UndeployBody,
)
from serving_proxy.control.plane import Plane
from serving_proxy.cores.views import core_lines
from serving_proxy.deploy.endpoints import EndpointsView, endpoints
from serving_proxy.deploy.explain import explain
from serving_proxy.deploy.views import ExplainView, ModelView, job_view, model_view
from serving_proxy.errors import InvalidError
from serving_proxy.request_log.operations import LAST


def model_routes(plane: Plane) -> APIRouter:
    """Make the routes."""
    router = APIRouter(prefix="/v1", responses=RESPONSES, tags=["models"])
    _add_deployments(router, plane)
    _add_shares(router, plane)
    return router


def _add_deployments(router: APIRouter, plane: Plane) -> None:
    operations = plane.operations

    def shown(name: str) -> ModelView:
        return model_view(plane.control.model(name), plane.control.hosts, placement=plane.control.placement)

    @router.post("/models/{name}/deploy", status_code=202)
    async def deploy(name: Name, body: DeployBody) -> DeployAnswer:
        """Deploy a version; the job in the response continues the deployment.

        `warmup` may be `last`: the newest requests of the model's request log.
        """
        missing: Mapping[str, str] = {}
        if body.warmup == LAST:
            file, missing = await plane.request_logs.warm_up_file(name, body.path, body.version)
            body = body.model_copy(update={"warmup": file})
        done = await operations.deploy(name, body.deployment(body.path))
        job = None if done.job is None else job_view(done.job)
        notes = [*done.notes, *(f"{name}: warm-up without the requests of {why}" for why in missing.values())]
        return DeployAnswer(version=done.version, job=job, notes=notes, model=shown(name))

    @router.post("/models/{name}/undeploy")
    async def undeploy(name: Name, body: UndeployBody) -> ModelView:
        """Take out a version after its last request, or the whole model."""
        operations.undeploy(name, body.version)
        return shown(name)

    @router.get("/models/{name}/versions")
    async def versions(name: Name) -> ModelView:
        """Show a model with all its versions, including those that were undeployed."""
        control = plane.control
        return model_view(control.model(name), control.hosts, stopped=True, placement=control.placement)

    @router.get("/models/{name}/endpoints")
    async def where(name: Name) -> EndpointsView:
        """Show the addresses to which clients send requests for a model."""
        control = plane.control
        moving = plane.fleet is not None and plane.fleet.placements.is_moving(name)
        # With an engine such as Ray, a host ends with its agent.
        away = None if plane.fleet is None or plane.replicas is not None else plane.fleet.machines.away()
        drained = control.host_settings.drained
        since = control.baseline_since(name)
        found = endpoints(control.model(name), control.hosts, control.placement, moving, away, drained, since)
        return EndpointsView(model=name, generation=control.desired.generation, endpoints=found)

    @router.get("/models/{name}/explain")
    async def why(name: Name) -> ExplainView:
        """Explain a model's state."""
        model = plane.control.model(name)
        cores = core_lines(plane.cores, model)
        return explain(model, plane.control.hosts, plane.control.desired.generation, cores)


def _add_shares(router: APIRouter, plane: Plane) -> None:
    operations = plane.operations

    def shown(name: str) -> ModelView:
        return model_view(plane.control.model(name), plane.control.hosts, placement=plane.control.placement)

    @router.put("/models/{name}/traffic")
    async def traffic(name: Name, body: TrafficBody) -> ModelView:
        """Split traffic between versions."""
        operations.traffic(name, body.weights)
        return shown(name)

    @router.post("/models/{name}/ramp")
    async def ramp(name: Name, body: RampBody) -> ModelView:
        """Change a version's share to a percentage within some time."""
        operations.ramp(name, body.version, body.to, body.over_s)
        return shown(name)

    @router.post("/models/{name}/promote")
    async def promote(name: Name, body: PromoteBody) -> ModelView:
        """Make a version the baseline once it is ready."""
        operations.promote(name, body.version)
        return shown(name)

    @router.post("/models/{name}/rollback")
    async def rollback(name: Name, body: RollbackBody | None = None) -> ModelView:
        """Send everything to the last good baseline, or hold a version at an earlier epoch of its timeline."""
        if body is None or body.epoch is None:
            if body is not None and body.version is not None:
                raise InvalidError("rollback: a version without an epoch, expected both or none")
            operations.rollback(name)
        else:
            operations.hold(name, body.epoch, body.version)
        return shown(name)

    @router.post("/models/{name}/resume")
    async def resume(name: Name, body: ResumeBody) -> ModelView:
        """Let a version that is held at an epoch follow its timeline again."""
        operations.hold(name, None, body.version)
        return shown(name)

    @router.post("/models/{name}/pause")
    async def pause(name: Name, body: PauseBody) -> ModelView:
        """Set or clear the kill switch of a model's experiments."""
        operations.pause(name, body.paused)
        return shown(name)
