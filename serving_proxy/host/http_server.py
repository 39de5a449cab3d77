# SPDX-License-Identifier: Apache-2.0
"""uvicorn on a socket of our own, with limits that it does not have."""

from __future__ import annotations

import asyncio
import socket
from asyncio import TimerHandle
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serving_proxy.host.options import HostOptions
from serving_proxy.host.tls import http_context
from serving_proxy.system.listening import HEALTH_CONNECTIONS, Server

_MOST_HEAD_BYTES = 65536
# How long the answer to a request may take whose client has closed its sending side. A client that is gone looks the
# same, so that work for it ends then.
HALF_CLOSE_S = 0.5


class GuardedProtocol(HttpToolsProtocol):
    """A connection that has to bring the head of a request in time, and not too long a one."""

    read_seconds = 20.0
    most_connections = 4096

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a head, though nothing of it has come."""
        super().connection_made(transport)
        self._head_bytes = 0
        self._client_is_done = False
        # What comes first has until then; later requests begin when their first byte comes.
        self._head_timer: TimerHandle | None = self._later()
        if len(self.connections) > self.most_connections:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Count what comes before a request's head is complete."""
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
        """Stop waiting for a head, and refuse one that a server on the way may read otherwise."""
        self._head_bytes = 0
        self._stop_waiting()
        names = {name for name, _ in self.headers}
        version = self.parser.get_http_version()
        if version == "1.1" and b"host" not in names:
            # What is raised here is answered with 400, as what the parser refuses.
            raise ValueError("request: no Host, expected one")
        if version == "1.0" and b"transfer-encoding" in names:
            raise ValueError("request: Transfer-Encoding in HTTP/1.0, expected a Content-Length")
        super().on_headers_complete()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Say whether to keep a connection that the client has closed on its side: while it waits for an answer."""
        # asyncio cannot do that with TLS.
        if self._is_idle() or self.cycle.more_body or self.transport.get_extra_info("ssl_object") is not None:
            return False
        self._client_is_done = True
        self.loop.call_later(HALF_CLOSE_S, self.transport.close)
        return True

    def on_response_complete(self) -> None:
        """Go on with the next request, if there can be one."""
        super().on_response_complete()
        if self._client_is_done and self._is_idle():
            self.transport.close()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _later(self) -> TimerHandle:
        return self.loop.call_later(self.read_seconds, self._give_up)

    def _give_up(self) -> None:
        if not self._is_idle():
            # The one before, which has come in full, is being answered.
            self._head_timer = self._later()
        else:
            self.transport.abort()

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class HttpServer:
    """A server on one port, which takes no connection until it is started.

    Attributes
    ----------
    port : int
        Where it listens.
    """

    def __init__(self, app: Any, options: HostOptions, reserved: socket.socket, *, plain: bool = False) -> None:
        self._socket = reserved
        self.port: int = reserved.getsockname()[1]

        class Protocol(GuardedProtocol):
            read_seconds = options.read_seconds
            # gRPC has as many.
            most_connections = HEALTH_CONNECTIONS if plain else options.most_connections(options.max_connections)

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
        """Begin to answer."""
        self._running = asyncio.create_task(self._server.serve([self._socket]))
        while not self._server.started and not self._running.done():
            await asyncio.sleep(0.005)
        if self._running.done():
            self._running.result()

    async def stop(self, seconds: float) -> None:
        """Take no more requests, and wait so long for those in flight; what is left then is cancelled."""
        if self._running is None:
            self._socket.close()
            return
        self._server.config.timeout_graceful_shutdown = max(1, int(seconds))
        self._server.should_exit = True
        await self._running
