# SPDX-License-Identifier: Apache-2.0
"""Errors as HTTP responses; the only module that contains HTTP's status codes for them."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from serving_proxy.errors import ProxyError
from serving_proxy.field_faults import field_fault

log = logging.getLogger("serving_proxy.api")

HTTP_CODES = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    413: "INVALID_ARGUMENT",
    503: "UNAVAILABLE",
}
_MOST_NAMED = 3


class ErrorBody(BaseModel):
    """Status and message."""

    status: str
    message: str


class ErrorAnswer(BaseModel):
    """The response to every request that fails."""

    error: ErrorBody


_SCHEMAS = "#/components/schemas/"


def _described(code: int) -> dict[str, object]:
    # With "model" instead, FastAPI would prepare a validator for each error of each route, which takes most of the
    # time in which a proxy starts.
    schema = {"$ref": f"{_SCHEMAS}{ErrorAnswer.__name__}"}
    return {"description": HTTPStatus(code).phrase, "content": {"application/json": {"schema": schema}}}


RESPONSES: dict[int | str, dict[str, object]] = {
    code: _described(code) for code in (400, 401, 403, 404, 405, 408, 409, 413, 429, 500, 503)
}
"""The errors that any verb may return, for the OpenAPI description."""
LATE: dict[int | str, dict[str, object]] = {504: _described(504)}
"""The error of verbs that wait for hosts."""


def schemas() -> dict[str, Any]:
    """Return the schemas that `RESPONSES` and `LATE` name, by their names."""
    found = ErrorAnswer.model_json_schema(ref_template=f"{_SCHEMAS}{{model}}")
    return {**found.pop("$defs"), ErrorAnswer.__name__: found}


def answer(status: str, message: str, code: int | None = None) -> JSONResponse:
    """Return the response to a request that failed."""
    headers = {"WWW-Authenticate": "Bearer"} if status == "UNAUTHENTICATED" else None
    content = {"error": {"status": status, "message": message}}
    return JSONResponse(content, status_code=code or HTTP_CODES.get(status, 500), headers=headers)


def add_handlers(app: FastAPI) -> None:
    """Give all errors the same form."""

    @app.exception_handler(ProxyError)
    async def proxy_error(_: Request, error: ProxyError) -> JSONResponse:
        return answer(error.status, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        faults = error.errors()
        said = "; ".join(_fault(fault) for fault in faults[:_MOST_NAMED])
        more = f" and {len(faults) - _MOST_NAMED} more" if len(faults) > _MOST_NAMED else ""
        return answer("INVALID_ARGUMENT", f"request: {said}{more}")

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        status = _STATUSES.get(error.status_code, "INTERNAL")
        response = answer(status, str(error.detail), error.status_code)
        for name, value in (error.headers or {}).items():
            response.headers[name] = value
        methods = _methods(app, request.url.path) if error.status_code == 405 else []
        if methods:
            # Each method is a route of its own, and the router knows only the methods of one route.
            response.headers["Allow"] = ", ".join(methods)
        return response

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s", request.method, request.url.path, exc_info=error)
        return answer("INTERNAL", f"{type(error).__name__}: see the log of the proxy")


def _methods(app: FastAPI, path: str) -> list[str]:
    """Return the methods of a path according to the description."""
    for template, operations in app.openapi()["paths"].items():
        if compile_path(template)[0].fullmatch(path):
            return sorted(method.upper() for method in operations)
    return []


def _fault(fault: dict[str, Any]) -> str:
    # The first part says where the value is: in the path, the query or the body.
    said = field_fault(fault, skipped=1)
    return said if len(fault["loc"]) > 1 and fault["type"] != "json_invalid" else f"body: {said}"
