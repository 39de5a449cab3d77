# SPDX-License-Identifier: Apache-2.0
"""The process of `serving-proxy serve`, from its lock to its last host."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from serving_proxy.access.tokens import announce, own_token, read_token
from serving_proxy.api.app import create_app
from serving_proxy.api.connection_limits import limited_protocol
from serving_proxy.control.plane import Plane
from serving_proxy.deploy.host_rules import load_rules
from serving_proxy.deploy.options import ModelSettings
from serving_proxy.errors import InvalidError, UnavailableError
from serving_proxy.hosts.command import host_program
from serving_proxy.serve.settings import ServeSettings
from serving_proxy.sources.models_config import single_model
from serving_proxy.store import Database, Repository, StateLock
from serving_proxy.system.files import private_folder
from serving_proxy.system.listening import ENDING, Server, most_connections, raise_file_limit

log = logging.getLogger("serving_proxy.serve")

_MOST_CONNECTIONS = 512
_KEEP_ALIVE_S = 30
_BACKLOG = 128


def serve(settings: ServeSettings) -> None:
    """Run the proxy until it is told to end.

    Raises
    ------
    ProxyError
        It cannot start: a setting is invalid, the state directory is in use or damaged, or the port is taken.
    """
    # Requests, logs and models are private to this user; hosts and workers inherit the mask.
    os.umask(0o077)
    raise_file_limit()
    load_rules()
    asyncio.run(_run_until_signaled(settings))


async def _run_until_signaled(settings: ServeSettings) -> None:
    ended = asyncio.Event()
    for number in ENDING:
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await run(settings, ended)


async def run(settings: ServeSettings, ended: asyncio.Event) -> None:
    """Run the proxy until an event is set; raise the errors of `serve`."""
    settings.check()
    if settings.token_file is not None:
        read_token(settings.token_file)
    state_dir = private_folder(settings.state_dir)
    with StateLock(state_dir) as lock:
        if settings.discard_state:
            discard(state_dir)
        database = Database(state_dir / "proxy.sqlite3")
        try:
            await _run(settings, lock, Repository(database), ended)
        finally:
            database.close()


def discard(state_dir: Path) -> None:
    """Rename the files with the deployed state to `NAME.discarded`, replacing those that were discarded before.

    Raises
    ------
    InvalidError
        The folder cannot be written to.
    """
    for name in ("proxy.sqlite3", "proxy.sqlite3-wal", "proxy.sqlite3-shm", "desired.json"):
        path = state_dir / name
        try:
            path.with_name(f"{name}.discarded").unlink(missing_ok=True)
            path.rename(path.with_name(f"{name}.discarded"))
            log.warning("--discard-state: %s is now %s.discarded", path, name)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise InvalidError(f"--discard-state {path}: {error.strerror}, expected to set it aside") from error
    for accepted in state_dir.glob("hosts/*/accepted.json"):
        accepted.unlink(missing_ok=True)


async def _run(settings: ServeSettings, lock: StateLock, repository: Repository, ended: asyncio.Event) -> None:
    listener = _bind(settings.admin_address, settings.admin_port)
    host, port = listener.getsockname()[:2]
    url = f"{'http' if settings.admin_tls is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}"
    with contextlib.ExitStack() as stack:
        stack.callback(listener.close)
        token_file, token = settings.token_file, None
        if settings.admin_auth == "token":
            token_file = token_file or own_token(settings.state_dir.resolve())
            token = read_token(token_file, "")
            # Before a client can connect, so that a client that waits for the port finds the token with it.
            stack.enter_context(announce(url, token_file.resolve()))
        _listen(listener, settings)
        plane = _make_plane(settings, repository, url, token_file)
        server = _make_server(settings, create_app(plane, token))
        await _serve_until(ended, settings, lock, plane, server, listener, url)


def _make_plane(settings: ServeSettings, repository: Repository, url: str, token_file: Path | None) -> Plane:
    # Hosts run on this machine: if the proxy listens on all addresses, they reach it at the loopback address.
    here = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    options = settings.host_options(here, token_file)
    if settings.host != "none":
        host_program(options)
    single = None
    if settings.model_base_path is not None:
        single = single_model(settings.model_name, settings.model_base_path)
    base_settings = _base_settings(settings)
    return Plane(
        settings.control_options(), options, repository, settings.config, settings.model_settings, single, base_settings
    )


def _make_server(settings: ServeSettings, app: FastAPI) -> Server:
    certificate, key = settings.admin_tls or (None, None)
    return Server(
        uvicorn.Config(
            app,
            http=limited_protocol(most_connections(_MOST_CONNECTIONS)),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=5,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
    )


async def _serve_until(
    ended: asyncio.Event,
    settings: ServeSettings,
    lock: StateLock,
    plane: Plane,
    server: Server,
    listener: socket.socket,
    url: str,
) -> None:
    """Serve the admin port and control the hosts until the event is set, or either of them fails."""
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with plane.running(settings.drain_timeout, settings.keep_hosts):
            lock.tell(pid=plane.status().pid, admin=url)
            log.info("ready", extra={"admin": url, "state_dir": str(settings.state_dir)})
            end_requested = asyncio.create_task(ended.wait())
            waits: list[asyncio.Future[Any]] = [end_requested, plane.failed, serving]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            end_requested.cancel()
            if not ended.is_set():
                plane.leave_hosts()
                log.critical("ending unexpectedly: the hosts keep serving, and the next proxy takes them over")
            else:
                log.info("shutting down: hosts drain for at most %g s", settings.drain_timeout)
    finally:
        server.should_exit = True
        (ended_by,) = await asyncio.gather(serving, return_exceptions=True)
    if isinstance(ended_by, Exception):
        raise UnavailableError(f"admin port {url}: {ended_by}, expected it to stay open") from ended_by
    if plane.failed.done():
        plane.failed.result()


def _base_settings(settings: ServeSettings) -> ModelSettings:
    """Return the settings that TensorFlow Serving's batching parameters set for every model."""
    batching = settings.batching_parameters()
    if batching is None:
        return ModelSettings()
    for note in batching.notes:
        log.warning("%s", note)
    return ModelSettings(config=batching.config, batching=batching.batching, limits=batching.limits)


def _bind(address: str, port: int) -> socket.socket:
    """Bind the admin port; this is done here because the port must be known before hosts start."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # If the protocol is named, asyncio turns Nagle's algorithm off.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
    except OSError as error:
        listener.close()
        raise UnavailableError(f"--admin-port {address}:{port}: {error.strerror}, expected a free port") from error
    listener.setblocking(False)
    return listener


def _listen(listener: socket.socket, settings: ServeSettings) -> None:
    try:
        listener.listen(_BACKLOG)
    except OSError as error:
        place = f"{settings.admin_address}:{settings.admin_port}"
        raise UnavailableError(f"--admin-port {place}: {error.strerror}, expected a free port") from error
