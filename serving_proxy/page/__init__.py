# SPDX-License-Identifier: Apache-2.0
"""The dashboard at the admin port: static files, kept in memory, that show data of the admin API.

The files contain no secret and anyone may load them; the data need the token. Nothing is loaded from other servers, and
the browser is told to accept nothing else.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import Annotated

from fastapi import FastAPI, Header, Path, Response
from starlette.exceptions import HTTPException

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Browsers check every time, and get 304 if nothing has changed, so that none mixes two releases after an upgrade.
    "Cache-Control": "no-cache",
}

IfNoneMatch = Annotated[str | None, Header(max_length=1000)]


@cache
def files() -> dict[str, tuple[bytes, str]]:
    """Return content and ETag of every file by name."""
    found = {}
    for file in resources.files(__name__).joinpath("static").iterdir():
        if file.name.rpartition(".")[2] in _TYPES:
            data = file.read_bytes()
            found[file.name] = (data, f'"{hashlib.sha256(data).hexdigest()[:16]}"')
    return found


def add_page(app: FastAPI) -> None:
    """Serve `/` as the dashboard, and the dashboard's files below `/page/`."""

    @app.get("/", include_in_schema=False)
    async def index(if_none_match: IfNoneMatch = None) -> Response:
        return _answer("index.html", if_none_match)

    @app.get("/page/{name}", include_in_schema=False)
    async def file(name: Annotated[str, Path(max_length=64)], if_none_match: IfNoneMatch = None) -> Response:
        return _answer(name, if_none_match)


def _answer(name: str, known: str | None) -> Response:
    if name not in files():
        raise HTTPException(404, "no such file of the dashboard")
    data, tag = files()[name]
    headers = {**_HEADERS, "ETag": tag}
    if known == tag:
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type=_TYPES[name.rpartition(".")[2]])
