# SPDX-License-Identifier: Apache-2.0
"""The host as a whole: a ModelHost, two servers in front of it, and their shutdown.

The ports for requests are reserved at the start and opened when the models are ready: if several hosts share a port,
the kernel would otherwise hand connections to a host that cannot serve yet. Health and metrics have a port of their
own, which is open from the start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from typing import Any

from processor import DeadlineExceededError, Host
from serving_proxy.host.admin import Admin
from serving_proxy.host.grpc_server import GrpcServer
from serving_proxy.host.health_app import HealthApplication
from serving_proxy.host.http_app import Application
from serving_proxy.host.http_cors import with_cors
from serving_proxy.host.http_server import HttpServer
from serving_proxy.host.model_control import ModelControl
from serving_proxy.host.options import HostOptions
from serving_proxy.host.ports import reserve
from serving_proxy.host.readiness import Readiness
from serving_proxy.host.tracing import make_engine
from serving_proxy.host.unix_sockets import UnixSocket
from serving_proxy.system.listening import ENDING, HEALTH_CONNECTIONS
from serving_proxy.system.liveness import PERIOD_S, Heartbeat

log = logging.getLogger("serving_proxy.host")

# A load that cannot be interrupted must not keep the process running for longer.
_CLOSE_S = 5.0


class HostServer:
    """Serves until it is told to stop."""

    def __init__(self, host: Host, options: HostOptions) -> None:
        self._host = host
        self._options = options
        self._engine = engine = make_engine(host)
        admin = Admin(options.admin, options.token_file)
        self._grpc = GrpcServer(engine, options, admin)
        self._readiness = Readiness(host, self._grpc.set_health, self._grpc.request_memory)
        control = ModelControl(admin if options.allow_model_control else None)
        application = Application(engine, self._readiness, control, options)
        requests = with_cors(application, options.cors_origin)
        # Held to the end, so that no other program takes the ports, at which gRPC and uvicorn have sockets of their
        # own.
        self._grpc_port = reserve(host, options.address, options.grpc_port)
        rest_port = reserve(host, options.address, options.rest_port)
        self._sockets = {
            name: UnixSocket(path, options.socket_mode)
            for name, path in (("grpc-socket", options.grpc_socket), ("rest-socket", options.rest_socket))
            if path is not None
        }
        self._http = {"rest": HttpServer(requests, options, rest_port)}
        # The addresses at which requests are served, by the names of the endpoints.
        self._addresses = {"grpc": self._address_of(self._grpc_port), "rest": self._address_of(rest_port)}
        self._addresses |= {name: each.address for name, each in self._sockets.items()}
        if (rest_socket := self._sockets.get("rest-socket")) is not None:
            self._http["rest-socket"] = HttpServer(requests, options, rest_socket.bind(), plain=True)
        self._health: HttpServer | None = None
        if options.health_port is not None:
            reserved = reserve(host, options.address, options.health_port)
            self._health = HttpServer(
                HealthApplication(application), options, reserved, plain=True, most_connections=HEALTH_CONNECTIONS
            )
            self._health_address = self._address_of(reserved)
        self._stop = asyncio.Event()
        self._listening = False

    async def run(self) -> None:
        """Serve until SIGTERM, SIGINT or SIGHUP; a second one ends the process at once."""
        loop = asyncio.get_running_loop()
        for number in ENDING:
            loop.add_signal_handler(number, self._on_signal, number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        await self._grpc.set_health(ready=False, models={})
        if self._health is not None:
            await self._health.start()
            self._tell("health", self._health_address)
        watching = asyncio.create_task(self._readiness.watch())
        beating = asyncio.create_task(self._beat())
        stopped = asyncio.create_task(self._stop.wait())
        first: list[asyncio.Task[Any]] = [stopped, asyncio.create_task(self._readiness.wait())]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not self._stop.is_set():
            await self._listen()
        await stopped
        await self._end(watching)
        beating.cancel()

    async def _beat(self) -> None:
        """Give signs of life from the event loop that serves requests, until cancelled."""
        heartbeat = Heartbeat(self._options.state_dir, self._options.host_id)
        while True:
            heartbeat.beat()
            await asyncio.sleep(PERIOD_S)

    async def _listen(self) -> None:
        """Accept connections for requests."""
        self._listening = True
        port: int = self._grpc_port.getsockname()[1]
        await self._grpc.start(port, self._sockets.get("grpc-socket"))
        await asyncio.gather(*(server.start() for server in self._http.values()))
        for name, address in self._addresses.items():
            self._tell(name, address)

    def _address_of(self, reserved: socket.socket) -> str:
        return f"{self._options.address}:{reserved.getsockname()[1]}"

    def _tell(self, name: str, address: str) -> None:
        self._host.set_endpoint(name, address)
        log.info("%s: listening on %s", name, address)

    def _on_signal(self, number: int) -> None:
        if self._stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        log.info("%s: stopping", signal.Signals(number).name)
        self._host.prepare_end()
        self._stop.set()

    async def _end(self, watching: asyncio.Task[None]) -> None:
        """Notify probes first, then refuse new requests, then wait for those in flight."""
        seconds = self._options.drain_seconds
        until = time.monotonic() + seconds
        await self._readiness.stop()
        watching.cancel()
        for name in self._addresses:
            self._host.set_endpoint(name, None)
        if self._listening:
            servers: list[GrpcServer | HttpServer] = [self._grpc, *self._http.values()]
            await asyncio.gather(*(server.stop(seconds) for server in servers))
        for each in self._sockets.values():
            each.release()
        try:
            await asyncio.to_thread(self._host.drain, until)
        except DeadlineExceededError as error:
            log.warning("%s", error)
        if self._health is not None:
            await self._health.stop(seconds=1)
        await self._close()
        log.info("stopped")

    async def _close(self) -> None:
        """Unload all models; a load that cannot be interrupted ends with the process."""
        closing = asyncio.create_task(asyncio.to_thread(self._host.close))
        done, _ = await asyncio.wait([closing], timeout=_CLOSE_S)
        if not done:
            log.warning("a load cannot be interrupted, and ends with the process")
            logging.shutdown()
            os._exit(0)
        await asyncio.to_thread(self._engine.close)
