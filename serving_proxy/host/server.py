# SPDX-License-Identifier: Apache-2.0
"""The host as a whole: a ModelHost, two servers in front of it, and their end."""

from __future__ import annotations

import asyncio
import logging
import signal
import time

from processor import DeadlineExceededError, Host
from serving_proxy.heartbeats import PERIOD_S, Heartbeat
from serving_proxy.host.grpc_server import GrpcServer
from serving_proxy.host.http_app import Application
from serving_proxy.host.http_server import HttpServer
from serving_proxy.host.options import HostOptions
from serving_proxy.host.readiness import Readiness
from serving_proxy.host.tracing import make_engine

log = logging.getLogger("serving_proxy.host")


class HostServer:
    """Serves until it is told to stop."""

    def __init__(self, host: Host, options: HostOptions) -> None:
        self._host = host
        self._options = options
        self._engine = engine = make_engine(host)
        self._grpc = GrpcServer(engine, options)
        self._readiness = Readiness(host, self._grpc.set_health)
        self._http = HttpServer(Application(engine, self._readiness, options), options)
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Serve until SIGTERM, SIGINT or SIGHUP; a second one ends the process at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number)
        await self._grpc.start()
        await self._http.start()
        for name, port in (("grpc", self._grpc.port), ("rest", self._http.port)):
            self._host.set_endpoint(name, f"{self._options.address}:{port}")
            log.info("%s: listening on %s:%d", name, self._options.address, port)
        watching = asyncio.create_task(self._readiness.watch())
        beating = asyncio.create_task(self._beat())
        await self._stop.wait()
        await self._end(watching)
        beating.cancel()

    async def _beat(self) -> None:
        """Give signs of life from the loop that answers, until cancelled."""
        heartbeat = Heartbeat(self._options.state_dir, self._options.host_id)
        while True:
            heartbeat.beat()
            await asyncio.sleep(PERIOD_S)

    def _on_signal(self, number: int) -> None:
        if self._stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        log.info("%s: stopping", signal.Signals(number).name)
        self._stop.set()

    async def _end(self, watching: asyncio.Task[None]) -> None:
        """Tell probes first, then refuse what is new, then wait for what is in flight."""
        seconds = self._options.drain_seconds
        until = time.monotonic() + seconds
        await self._readiness.stop()
        watching.cancel()
        for name in ("grpc", "rest"):
            self._host.set_endpoint(name, None)
        await asyncio.gather(self._grpc.stop(seconds), self._http.stop(seconds))
        try:
            await asyncio.to_thread(self._host.drain, until)
        except DeadlineExceededError as error:
            log.warning("%s", error)
        await asyncio.to_thread(self._host.close)
        await asyncio.to_thread(self._engine.close)
        log.info("stopped")
