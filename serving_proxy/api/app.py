# SPDX-License-Identifier: Apache-2.0
"""The FastAPI application of the admin port."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from serving_proxy.access.login import Sessions, login_routes
from serving_proxy.api.agents import agent_routes
from serving_proxy.api.configuration import configuration_routes
from serving_proxy.api.errors import RESPONSES, add_handlers, schemas
from serving_proxy.api.guard import guard_routes
from serving_proxy.api.metrics import registry
from serving_proxy.api.middleware import AGENTS_PATH, Guarding
from serving_proxy.api.models import model_routes
from serving_proxy.api.placement import placement_routes
from serving_proxy.api.proxy import proxy_routes
from serving_proxy.api.request_log import request_log_routes
from serving_proxy.api.stream import stream_route
from serving_proxy.control.plane import Plane
from serving_proxy.page import add_page
from serving_proxy.version import version

_ABOUT = "Deploys models, splits traffic between their versions, promotes and rolls back. Shares are in percent."


def create_app(plane: Plane, token: str | None, agent_token: str | None = None) -> FastAPI:
    """Make the application.

    Parameters
    ----------
    plane : Plane
    token : str or None
        The token that clients must send; None: only requests from this machine are served.
    agent_token : str, optional
        The token of agents, which permits nothing else.
    """
    # The pages of Swagger and ReDoc load files from other servers, but the proxy works offline.
    app = FastAPI(title="serving-proxy", version=version(), description=_ABOUT, docs_url=None, redoc_url=None)
    add_handlers(app)
    for routes in (
        model_routes,
        guard_routes,
        request_log_routes,
        configuration_routes,
        proxy_routes,
        stream_route,
        placement_routes,
    ):
        app.include_router(routes(plane))
    if plane.fleet is not None:
        app.include_router(agent_routes(plane, plane.fleet))
    add_page(app)
    _add_health(app, plane)
    sessions = None if token is None else Sessions(token)
    if sessions is not None:
        app.include_router(login_routes(sessions))
    narrow = {} if agent_token is None else {AGENTS_PATH: Sessions(agent_token)}
    app.add_middleware(Guarding, sessions=sessions, narrow=narrow)
    app.openapi = lambda: _openapi(app, token)  # type: ignore[method-assign]
    return app


def _add_health(app: FastAPI, plane: Plane) -> None:
    metrics = registry(plane)

    @app.get("/healthz", tags=["proxy"], responses={503: {"description": "It is going down"}})
    async def healthz(response: Response) -> dict[str, str]:
        """Return 200 while the proxy works, and 503 once it is shutting down."""
        if plane.closing.is_set():
            response.status_code = 503
            return {"status": "closing"}
        return {"status": "ok"}

    guarded: dict[int | str, dict[str, Any]] = {code: RESPONSES[code] for code in (401, 403)}

    @app.get("/metrics", tags=["proxy"], response_class=Response, responses=guarded)
    async def metrics_text() -> Response:
        """Return the metrics of the control plane as Prometheus text."""
        return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)


def _openapi(app: FastAPI, token: str | None) -> dict[str, Any]:
    """Describe the API, with its own errors instead of FastAPI's."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for path in schema["paths"].values():
            for operation in path.values():
                operation.get("responses", {}).pop("422", None)
        described = schema["components"]["schemas"] | schemas()
        for name in ("HTTPValidationError", "ValidationError"):
            described.pop(name, None)
        schema["components"]["schemas"] = dict(sorted(described.items()))
        if token is not None:
            schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"token": []}]
            schema["paths"]["/healthz"]["get"]["security"] = []
        app.openapi_schema = schema
    return app.openapi_schema
