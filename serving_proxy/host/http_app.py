# SPDX-License-Identifier: Apache-2.0
"""The HTTP application: plain ASGI, because a framework's routing would cost more than most requests."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from processor import Answer, InvalidArgumentError, ProcessorError, RequestBytes
from serving_proxy.host.call import HEADER_LENGTH, Call, Operation, shown
from serving_proxy.host.engine import Engine
from serving_proxy.host.http_body import BodyError, DisconnectedError, Message, Receive, decompress, read_body
from serving_proxy.host.http_disconnect import unless_disconnected
from serving_proxy.host.http_routes import Page, Route, RouteError, Verb, find_route
from serving_proxy.host.inline_execution import kind_of
from serving_proxy.host.model_control import ModelControl
from serving_proxy.host.options import HostOptions
from serving_proxy.host.provenance import Pairs, provenance
from serving_proxy.host.readiness import Readiness
from serving_proxy.host.statuses import NO_MEMORY, http_status, retry_after_us

Send = Callable[[Message], Awaitable[None]]

TIMEOUT = "x-timeout-ms"
_NO_OPERATION = Operation("kserve_json", "")
_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_BINARY = "application/octet-stream"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Application:
    """Serves HTTP requests."""

    def __init__(self, engine: Engine, readiness: Readiness, control: ModelControl, options: HostOptions) -> None:
        self._engine = engine
        self._readiness = readiness
        self._control = control
        self._limit = options.max_message_bytes
        self._seconds = options.read_seconds

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one request."""
        protocol = ""
        try:
            route = find_route(scope["raw_path"])
            if not isinstance(route.target, Page):
                protocol = _protocol_of(route.target)
            _check_method(scope["method"], route)
            if isinstance(route.target, Page):
                await self._show(route.target, send)
                return
            if isinstance(route.target, Verb):
                await self._hand_on(route.target, route, scope, receive, send)
                return
            with RequestBytes() as claim:
                call = await self._read_call(route.target, route, scope, receive, claim)
                answer = await self._answer(call, receive)
                call.data = b""
        except DisconnectedError:
            return
        except RouteError as error:
            more = [] if error.allowed is None else [("allow", error.allowed)]
            await _refuse(send, error.status, str(error), error.protocol, more)
        except BodyError as error:
            # The rest of the body is not waited for.
            more = [("connection", "close")]
            if error.retry_seconds is not None:
                more.append(("retry-after", str(error.retry_seconds)))
            await _refuse(send, error.status, str(error), protocol, more)
        except ProcessorError as error:
            await _fail(send, error, protocol)
        except MemoryError:
            await _refuse(send, 429, NO_MEMORY, protocol, [("connection", "close"), ("retry-after", "1")])
        else:
            await _succeed(send, call.operation, answer)

    async def _read_call(
        self, operation: Operation, route: Route, scope: Any, receive: Receive, claim: RequestBytes
    ) -> Call:
        call = Call(operation, b"", route.model, route.version, route.label)
        length = encoding = None
        for name, padded in scope["headers"]:
            # The parser leaves spaces at the end.
            value = padded.rstrip(b" \t")
            if name == b"content-length":
                length = value
            elif name == b"content-encoding":
                encoding = value
            elif name == b"x-timeout-ms":
                call.deadline = time.monotonic() + _milliseconds(value) / 1000
            elif name[:2] == b"x-" or name == b"traceparent" or name == b"inference-header-content-length":
                call.take(name.decode("latin-1"), value)
        call.data = await read_body(receive, length, self._limit, self._seconds, claim)
        if encoding is not None and encoding != b"identity":
            call.data = await decompress(call.data, encoding, self._limit, claim)
        return call

    async def _answer(self, call: Call, receive: Receive) -> Answer:
        kind = kind_of(call)
        answer = self._engine.answer_now(call, kind)
        if answer is not None:
            return answer
        return await unless_disconnected(self._engine.answer_later(call, kind), receive)

    async def _hand_on(self, verb: Verb, route: Route, scope: Any, receive: Receive, send: Send) -> None:
        with RequestBytes() as claim:
            call = await self._read_call(_NO_OPERATION, route, scope, receive, claim)
            body, call.data = bytes(call.data), b""
        left = None if call.deadline is None else call.deadline - time.monotonic()
        code, message = await self._control.over_http(verb.value, route.model or "", body, left)
        status = http_status(code.value[0])
        if status == 200:
            await _send(send, 200, b"", _JSON, [])
        else:
            await _refuse(send, status, message, _protocol_of(verb), [])

    async def _show(self, page: Page, send: Send) -> None:
        if page is Page.METRICS:
            # On a thread, because it takes long with many models.
            text = await asyncio.to_thread(self._engine.host.metrics)
            await _send(send, 200, text.encode(), _METRICS, [])
        elif page is Page.ALIVE:
            await _send(send, 200, b"ok\n", _TEXT, [])
        else:
            status = 200 if self._readiness.ready else 503
            await _send(send, status, f"{self._readiness.state}\n".encode(), _TEXT, [])


def _protocol_of(target: Operation | Verb) -> str:
    return target.protocol if isinstance(target, Operation) else "kserve_json"


def _check_method(method: str, route: Route) -> None:
    # For HEAD requests, uvicorn sends only the head of the response.
    if method == route.allowed or (method == "HEAD" and route.allowed == "GET"):
        return
    protocol = "eas" if isinstance(route.target, Page) else _protocol_of(route.target)
    allowed = "GET, HEAD" if route.allowed == "GET" else route.allowed
    message = f"method {method[:20]}: not for this path, expected {allowed}"
    raise RouteError(405, message, protocol, allowed)


def _milliseconds(value: bytes) -> int:
    if not value.isdigit() or len(value) > 10:
        raise InvalidArgumentError(f"{TIMEOUT}: {shown(value)}, expected milliseconds")
    return int(value)


async def _succeed(send: Send, operation: Operation, answer: Answer) -> None:
    pairs = provenance(answer)
    content_type = _JSON if operation.protocol.endswith("_json") else _BINARY
    if answer.header_length:
        content_type = _BINARY
        pairs.append((HEADER_LENGTH, str(answer.header_length)))
    await _send(send, 200, answer.data, content_type, pairs)


async def _send(send: Send, status: int, body: bytes, content_type: str, pairs: Pairs) -> None:
    headers = [(name.encode(), value.encode()) for name, value in pairs]
    headers.append((b"content-type", content_type.encode()))
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _refuse(send: Send, status: int, message: str, protocol: str, pairs: Pairs) -> None:
    """Send an error in the form of a protocol: JSON, or text for raw requests."""
    if protocol == "eas":
        await _send(send, status, f"{message}\n".encode(), _TEXT, pairs)
    else:
        await _send(send, status, json.dumps({"error": message}).encode(), _JSON, pairs)


async def _fail(send: Send, error: ProcessorError, protocol: str) -> None:
    pairs = provenance(error.answer)
    retry = retry_after_us(error)
    if retry:
        pairs.append(("retry-after", str(max(1, -(-retry // 1_000_000)))))
    await _refuse(send, http_status(error.code), str(error), protocol, pairs)
