# SPDX-License-Identifier: Apache-2.0
"""The application of the port for health and metrics, which serves from the start of a host on."""

from __future__ import annotations

import json
from typing import Any

from serving_proxy.host.http_app import Application, Send
from serving_proxy.host.http_body import Receive
from serving_proxy.host.http_routes import Page, RouteError, find_route

_NOT_HERE = "path: not at this port, expected /healthz, /readyz or /metrics"


class HealthApplication:
    """Serves only those pages of an application that are about the host itself."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            is_page = isinstance(find_route(scope["raw_path"]).target, Page)
        except RouteError:
            is_page = False
        if is_page:
            await self._application(scope, receive, send)
            return
        body = json.dumps({"error": _NOT_HERE}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 404, "headers": headers})
        await send({"type": "http.response.body", "body": body})
