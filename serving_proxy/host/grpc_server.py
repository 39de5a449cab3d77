# SPDX-License-Identifier: Apache-2.0
"""The gRPC server: generic handlers of raw bytes, health, reflection."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as aio_health

from processor import max_request_bytes
from serving_proxy.host.admin import Admin
from serving_proxy.host.engine import Engine
from serving_proxy.host.grpc_calls import InFlight, single, stream, unary
from serving_proxy.host.grpc_messages import Inflating
from serving_proxy.host.grpc_methods import LOAD, RELOAD, SERVICES, SHORT_NAMES, STREAM, UNARY, UNLOAD
from serving_proxy.host.model_control import ModelControl
from serving_proxy.host.options import HostOptions
from serving_proxy.host.receive_timeout import ReceiveTimeout
from serving_proxy.host.reflection import HEALTH, REFLECTION, add_reflection
from serving_proxy.host.reload import Reload
from serving_proxy.host.request_memory import RequestMemory
from serving_proxy.host.tls import grpc_credentials
from serving_proxy.host.unix_sockets import UnixSocket

_MOST_RPCS = 8192
_MOST_CONNECTIONS = 1_000_000
# Time for answers that are written but not sent yet.
_FLUSH_SECONDS = 0.5
_NEVER_MS = 2**31 - 1
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class RawHandlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds the handler of a method by its path; messages are bytes."""

    def __init__(
        self,
        engine: Engine,
        reload: Reload,
        control: ModelControl,
        in_flight: InFlight,
        receive_timeout: ReceiveTimeout,
        limit: int,
    ) -> None:
        make = grpc.stream_unary_rpc_method_handler
        self._handlers = {
            path: make(unary(engine, operation, in_flight, receive_timeout, limit)) for path, operation in UNARY.items()
        }
        for path, handle in ((RELOAD, reload.handle), (LOAD, control.handle_load), (UNLOAD, control.handle_unload)):
            self._handlers[path] = make(single(handle, in_flight, receive_timeout, limit))
        self._handlers[STREAM] = grpc.stream_stream_rpc_method_handler(
            stream(engine, in_flight, receive_timeout, limit)
        )

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler, or None for UNIMPLEMENTED."""
        return self._handlers.get(handler_call_details.method)


class UnknownMethods(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Names the unknown service or method in the error, which gRPC would not do."""

    def service(self, handler_call_details: Any) -> Any:
        """Return a handler that refuses the call."""
        service, _, method = handler_call_details.method[1:].rpartition("/")
        message = f"unknown service {service}"
        if service in (*SERVICES, HEALTH, *REFLECTION):
            message = f"unknown method {method} for service {service}"

        async def refuse(_: Any, context: Any) -> bytes:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, message)
            return b""

        return grpc.stream_unary_rpc_method_handler(refuse)


class Health(aio_health.HealthServicer):  # type: ignore[misc]
    """gRPC's health service, with a list of all names."""

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - the names of gRPC
        """Return the status of a name."""
        if request.service not in self._server_status:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return await super().Check(request, context)

    async def List(self, request: Any, context: Any) -> Any:  # noqa: N802 - the names of gRPC
        """Return every name with its status."""
        statuses = {name: health_pb2.HealthCheckResponse(status=status) for name, status in self._server_status.items()}
        return health_pb2.HealthListResponse(statuses=statuses)


def _keepalive(options: HostOptions) -> list[tuple[str, int]]:
    """Return the options for the age of connections and for pings that detect lost peers; 0 s: never."""

    def milliseconds(seconds: float) -> int:
        return min(int(1000 * seconds), _NEVER_MS) if seconds > 0 else _NEVER_MS

    return [
        ("grpc.keepalive_time_ms", milliseconds(options.grpc_keepalive_seconds)),
        ("grpc.keepalive_timeout_ms", milliseconds(options.grpc_keepalive_timeout_seconds)),
        ("grpc.http2.ping_timeout_ms", milliseconds(options.grpc_keepalive_timeout_seconds)),
        # Also between calls: clients behind a balancer send pings then, and clients that vanish are detected.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", int(1000 * options.grpc_min_ping_seconds)),
        ("grpc.max_connection_age_ms", milliseconds(options.grpc_max_connection_age_seconds)),
        ("grpc.max_connection_idle_ms", milliseconds(options.grpc_max_connection_idle_seconds)),
    ]


class GrpcServer:
    """A server on one port, and perhaps a Unix domain socket, which accepts no connections until it is started.

    Attributes
    ----------
    request_memory : RequestMemory
        Memory of the requests that are being received.
    """

    def __init__(self, engine: Engine, options: HostOptions, admin: Admin) -> None:
        self._address = options.address
        self._credentials = grpc_credentials(options)
        limit = options.max_message_bytes
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", -1),
                # gRPC would inflate without a limit; see grpc_messages.
                ("grpc.per_message_decompression", 0),
                # Several processes share one port.
                ("grpc.so_reuseport", 1),
                ("grpc.max_concurrent_streams", 1024),
                # Leaves descriptors for files; HTTP has as many connections.
                ("grpc.max_allowed_incoming_connections", options.most_connections(_MOST_CONNECTIONS)),
                # A client must complete the HTTP/2 handshake soon, and clients that vanish are detected.
                ("grpc.server_handshake_timeout_ms", int(1000 * options.read_seconds)),
                *_keepalive(options),
            ],
            maximum_concurrent_rpcs=_MOST_RPCS,
        )
        reload = Reload(admin if options.allow_reload_rpc else None)
        control = ModelControl(admin if options.allow_model_control else None)
        self._in_flight = InFlight()
        self.request_memory = RequestMemory(max_request_bytes() // 2)
        self._receive_timeout = ReceiveTimeout(options.read_seconds, self.request_memory)
        self._watching: asyncio.Task[None] | None = None
        handlers = RawHandlers(engine, reload, control, self._in_flight, self._receive_timeout, limit)
        self._server.add_generic_rpc_handlers((handlers,))
        self._health = Health()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, Inflating(self._server))
        add_reflection(Inflating(self._server))
        self._server.add_generic_rpc_handlers((UnknownMethods(),))

    async def start(self, port: int, unix_socket: UnixSocket | None) -> None:
        """Begin to serve at a port, and at a Unix domain socket without TLS."""
        # Not earlier: gRPC listens as soon as it has a port, and connections would wait for the start.
        address = f"{self._address}:{port}"
        if self._credentials is None:
            self._server.add_insecure_port(address)
        else:
            self._server.add_secure_port(address, self._credentials)
        if unix_socket is not None:
            with unix_socket.binding():
                self._server.add_insecure_port(unix_socket.address)
        self._watching = asyncio.create_task(self._receive_timeout.watch())
        await self._server.start()

    async def set_health(self, ready: bool, models: dict[str, bool]) -> None:
        """Set the health of the server as a whole, of each service, and of each model by its name."""
        for name in ("", *SERVICES, *SHORT_NAMES):
            await self._health.set(name, _SERVING if ready else _NOT_SERVING)
        for name, model_ready in models.items():
            await self._health.set(name, _SERVING if model_ready and ready else _NOT_SERVING)

    async def stop(self, seconds: float) -> None:
        """Accept no more calls, and wait this long [s] for those in flight; the rest is cancelled.

        Idle open streams, such as those of clients that watch the health, are not waited for.
        """
        until = time.monotonic() + seconds
        stopping = asyncio.create_task(self._server.stop(seconds))
        # One turn of the loop, so that the server has notified its clients.
        await asyncio.sleep(0)
        await self._in_flight.wait(seconds)
        await self._server.stop(max(0.0, min(_FLUSH_SECONDS, until - time.monotonic())))
        await stopping
        if self._watching is not None:
            self._watching.cancel()
