# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy serve`: the process from its lock to its last host."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from serving_proxy.access import is_loopback, read_token
from serving_proxy.api import create_app
from serving_proxy.api.patience import PatientProtocol
from serving_proxy.control.plane import Plane
from serving_proxy.errors import InvalidError, UnavailableError
from serving_proxy.settings import ServeSettings
from serving_proxy.store import Database, Repository, StateLock
from serving_proxy.supervisor.command import host_program

log = logging.getLogger("serving_proxy.serve")

_MOST_CONNECTIONS = 512
_KEEP_ALIVE_S = 30
_BACKLOG = 128


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to us: they mean more than the end of the admin port."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(settings: ServeSettings) -> None:
    """Run the proxy until it is told to end.

    Raises
    ------
    ProxyError
        It cannot start: a setting is wrong, the state directory is in use or damaged, the port is taken.
    """
    asyncio.run(_until_signalled(settings))


async def _until_signalled(settings: ServeSettings) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await run(settings, ended)


async def run(settings: ServeSettings, ended: asyncio.Event) -> None:
    """Run the proxy until an event is set; errors as `serve`."""
    settings.check()
    try:
        settings.state_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidError(f"--state-dir {settings.state_dir}: {error.strerror}, expected a folder") from error
    token = None if settings.token_file is None else read_token(settings.token_file)
    with StateLock(settings.state_dir.resolve()) as lock:
        database = Database(settings.state_dir.resolve() / "proxy.sqlite3")
        try:
            await _run(settings, lock, Repository(database), token, ended)
        finally:
            database.close()


async def _run(
    settings: ServeSettings, lock: StateLock, repository: Repository, token: str | None, ended: asyncio.Event
) -> None:
    listener = _listen(settings.admin_address, settings.admin_port)
    tls = settings.tls_cert is not None and not is_loopback(settings.admin_address)
    host, port = listener.getsockname()[:2]
    url = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
    # Hosts are on this machine: where the proxy listens everywhere, it is to be found here.
    options = settings.host_options(url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:"))
    if settings.host != "none":
        host_program(options)
    plane = Plane(settings.control_options(), options, repository, settings.config)
    server = _Server(
        uvicorn.Config(
            create_app(plane, token),
            http=PatientProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=5,
            ssl_certfile=settings.tls_cert if tls else None,
            ssl_keyfile=settings.tls_key if tls else None,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with plane.running(settings.drain_timeout, settings.keep_hosts):
            lock.tell(pid=plane.status().pid, admin=url)
            log.info("ready", extra={"admin": url, "state_dir": str(settings.state_dir)})
            told = asyncio.create_task(ended.wait())
            waits: list[asyncio.Future[Any]] = [told, plane.failed, serving]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            told.cancel()
            plane.leave_hosts = not ended.is_set()
            if plane.leave_hosts:
                log.critical("ending without having been told to: hosts go on, and the next proxy finds them")
            else:
                log.info("ending: hosts drain for at most %g s", settings.drain_timeout)
    finally:
        server.should_exit = True
        (ended_by,) = await asyncio.gather(serving, return_exceptions=True)
    if isinstance(ended_by, Exception):
        raise UnavailableError(f"admin port {url}: {ended_by}, expected it to stay open") from ended_by
    if plane.failed.done():
        plane.failed.result()


def _listen(address: str, port: int) -> socket.socket:
    """Open the admin port; here, since it has to be known before hosts start."""
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        # With the protocol named, asyncio turns Nagle's algorithm off.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        raise UnavailableError(f"--admin-port {address}:{port}: {error.strerror}, expected a free port") from error
    listener.setblocking(False)
    return listener
