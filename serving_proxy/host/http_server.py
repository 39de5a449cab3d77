# SPDX-License-Identifier: Apache-2.0
"""uvicorn on a socket of the host's own, with limits that uvicorn does not have."""

from __future__ import annotations

import asyncio
import socket
from asyncio import TimerHandle
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serving_proxy.host.options import HostOptions
from serving_proxy.host.tls import http_context
from serving_proxy.system.listening import Server

_MOST_HEAD_BYTES = 65536
# How long a response may take if the client has closed its sending side. A client that is gone looks the same, so the
# work for it ends after this time.
HALF_CLOSE_S = 0.5


class GuardedProtocol(HttpToolsProtocol):
    """A connection that limits the size of a request's head and the time until it is complete."""

    read_seconds = 20.0
    most_connections = 4096

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a head, although no byte of it has come."""
        super().connection_made(transport)
        self._head_bytes = 0
        self._client_is_done = False
        # The first request has until then; each later one begins when its first byte comes.
        self._head_timer: TimerHandle | None = self._later()
        if len(self.connections) > self.most_connections:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Count the bytes that come before a request's head is complete."""
        super().data_received(data)
        if self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_HEAD_BYTES:
                self.transport.abort()

    def on_message_begin(self) -> None:
        """Begin to wait for the rest of a head."""
        super().on_message_begin()
        if self._head_timer is None:
            self._head_timer = self._later()

    def on_headers_complete(self) -> None:
        """Stop waiting for a head, and refuse one that a server on the way may interpret differently."""
        self._head_bytes = 0
        self._stop_waiting()
        names = {name for name, _ in self.headers}
        version = self.parser.get_http_version()
        if version == "1.1" and b"host" not in names:
            # An exception here is answered with 400, as errors of the parser are.
            raise ValueError("request: no Host, expected one")
        if version == "1.0" and b"transfer-encoding" in names:
            raise ValueError("request: Transfer-Encoding in HTTP/1.0, expected a Content-Length")
        super().on_headers_complete()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return whether to keep a connection whose client has closed its side: yes while a response is pending."""
        # asyncio cannot keep such connections with TLS.
        if self._is_idle() or self.cycle.more_body or self.transport.get_extra_info("ssl_object") is not None:
            return False
        self._client_is_done = True
        self.loop.call_later(HALF_CLOSE_S, self.transport.close)
        return True

    def on_response_complete(self) -> None:
        """Continue with the next request, if there can be one."""
        super().on_response_complete()
        if self._client_is_done and self._is_idle():
            self.transport.close()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _later(self) -> TimerHandle:
        return self.loop.call_later(self.read_seconds, self._give_up)

    def _give_up(self) -> None:
        if not self._is_idle():
            # The previous request, which is complete, is still being answered.
            self._head_timer = self._later()
        else:
            self.transport.abort()

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class HttpServer:
    """A server on one socket, which accepts no connections until it is started.

    Parameters
    ----------
    app : ASGI application
    options : HostOptions
    bound : socket
        It does not listen yet.
    plain : bool
        Whether it has no TLS even if the options name a certificate.
    most_connections : int, optional
        By default that of the options, or fewer if descriptors are scarce.
    """

    def __init__(
        self,
        app: Any,
        options: HostOptions,
        bound: socket.socket,
        *,
        plain: bool = False,
        most_connections: int | None = None,
    ) -> None:
        self._socket = bound
        # gRPC has as many connections.
        most = options.most_connections(options.max_connections) if most_connections is None else most_connections

        class Protocol(GuardedProtocol):
            read_seconds = options.read_seconds
            most_connections = most

        config = uvicorn.Config(
            app,
            http=Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=max(1, int(options.idle_seconds)),
        )
        config.load()
        config.ssl = None if plain else http_context(options)
        self._server = Server(config)
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to serve."""
        self._running = asyncio.create_task(self._server.serve([self._socket]))
        while not self._server.started and not self._running.done():
            await asyncio.sleep(0.005)
        if self._running.done():
            self._running.result()

    async def stop(self, seconds: float) -> None:
        """Accept no more requests, and wait this long [s] for those in flight; the rest is cancelled."""
        if self._running is None:
            self._socket.close()
            return
        self._server.config.timeout_graceful_shutdown = max(1, int(seconds))
        self._server.should_exit = True
        await self._running
