# SPDX-License-Identifier: Apache-2.0
"""The process of `serving-proxy serve`, from its lock to its last host."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from serving_proxy.access.tokens import announce, own_token, read_token
from serving_proxy.api.app import create_app
from serving_proxy.api.connection_limits import limited_protocol
from serving_proxy.api.standby import StandbyApp, SwitchedApp
from serving_proxy.control.plane import Leading, Plane
from serving_proxy.deploy.host_rules import load_rules
from serving_proxy.deploy.options import ModelSettings
from serving_proxy.deploy.placing import stored_placement
from serving_proxy.errors import InvalidError, UnavailableError
from serving_proxy.hosts.command import host_program
from serving_proxy.leadership.leading import Leadership
from serving_proxy.leadership.leases import open_lease
from serving_proxy.leadership.replica import Replica
from serving_proxy.leadership.shared_store import open_shared_store
from serving_proxy.leadership.standby import reopen, stand_by
from serving_proxy.leadership.watching import patience, watch_store
from serving_proxy.replicas.driver import Driver
from serving_proxy.replicas.loop import ReplicaOptions
from serving_proxy.serve.settings import ServeSettings
from serving_proxy.sources.models_config import single_model
from serving_proxy.store import Database, Repository, StateLock
from serving_proxy.system.files import private_folder
from serving_proxy.system.listening import ENDING, Server, most_connections, raise_file_limit

log = logging.getLogger("serving_proxy.serve")

_MOST_CONNECTIONS = 512
# Each agent has two connections: one waits for the next state, reports use the other.
_MOST_AGENTS = 8192
_KEEP_ALIVE_S = 30
_BACKLOG = 128
_RAY_DRIVER = "serving_proxy.ray_driver"


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
        await _run(settings, lock, ended)


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


async def _run(settings: ServeSettings, lock: StateLock, ended: asyncio.Event) -> None:
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
        agent_token = (
            None if settings.agent_token_file is None else read_token(settings.agent_token_file, "--agent-token-file ")
        )
        _listen(listener, settings)
        proxy = _Proxy(settings, lock, listener, url, ended)

        def begin(repository: Repository, leading: Leading | None = None) -> tuple[Plane, FastAPI]:
            plane = _make_plane(settings, repository, url, token_file, leading, agent_token or token)
            return plane, create_app(plane, token, agent_token)

        if settings.shared_store is None:
            await proxy.run_alone(begin)
        else:
            await proxy.run_among_others(begin, settings.shared_store)


Begin = Callable[..., tuple[Plane, FastAPI]]
"""Function from the repository, and the right to lead, to the control plane and its application."""


@dataclass
class _Proxy:
    """The process, its admin port, and the event that ends it."""

    settings: ServeSettings
    lock: StateLock
    listener: socket.socket
    url: str
    ended: asyncio.Event

    @property
    def _database(self) -> Path:
        return self.settings.state_dir.resolve() / "proxy.sqlite3"

    async def run_alone(self, begin: Begin) -> None:
        """Lead until the end."""
        database = Database(self._database)
        try:
            plane, app = begin(Repository(database))
            async with self._serving(app) as serving:
                await self._lead(plane, serving)
        finally:
            database.close()

    async def run_among_others(self, begin: Begin, shared: str) -> None:
        """Follow the proxy that leads, and lead whenever this proxy gets the lease."""
        store = open_shared_store(shared)
        cluster, lasts_s = (self.settings.ray_address, self.settings.ray_namespace), self.settings.lease_timeout
        lease = open_lease(self.settings.lease, shared, cluster, lasts_s)
        leadership = Leadership(lease, advertised_url(self.url), lasts_s)
        standby = StandbyApp(lambda: leadership.leader, lambda: leadership.is_cut_off)
        switched = SwitchedApp(standby)
        make = partial(Replica, store, self._database, self.settings.new_store or not store.may_be_unmounted)
        async with self._serving(switched) as serving:
            self.lock.tell(pid=os.getpid(), admin=self.url)
            while not self.ended.is_set() and not serving.done():
                # At the start a store that is not there is an error; later it may come back.
                has_led = leadership.term > 0
                replica = await reopen(make, leadership, self.ended) if has_led else make()
                if replica is None:
                    break
                try:
                    if await stand_by(replica, leadership, self.ended, _check_records):
                        plane, switched.app = begin(Repository(replica.database), leadership)
                        await self._lead_while_held(plane, serving, leadership, replica)
                finally:
                    switched.app = standby
                    await leadership.release()
                    replica.close()

    async def _lead_while_held(
        self, plane: Plane, serving: asyncio.Future[None], leadership: Leadership, replica: Replica
    ) -> None:
        log.info("leads", extra={"term": leadership.term, "admin": self.url})
        watching = watch_store(replica.check_store, replica.lose, patience(self.settings.lease_timeout))
        tasks = [asyncio.create_task(loop) for loop in (leadership.keep(), replica.keep_snapshots(), watching)]
        lost = asyncio.create_task(leadership.lost.wait())
        try:
            await self._lead(plane, serving, lost)
        finally:
            for task in (*tasks, lost):
                task.cancel()
            await asyncio.gather(*tasks, lost, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _serving(self, app: ASGIApp) -> AsyncIterator[asyncio.Future[None]]:
        """Serve the admin port while the block runs; yield the task that does."""
        server = _make_server(self.settings, app)
        serving = asyncio.create_task(server.serve(sockets=[self.listener]))
        try:
            yield serving
        finally:
            server.should_exit = True
            (ended_by,) = await asyncio.gather(serving, return_exceptions=True)
        if isinstance(ended_by, Exception):
            raise UnavailableError(f"admin port {self.url}: {ended_by}, expected it to stay open") from ended_by

    async def _lead(self, plane: Plane, serving: asyncio.Future[None], lost: asyncio.Future[Any] | None = None) -> None:
        """Control the hosts until the end is requested, this proxy no longer leads, or something fails."""
        async with plane.running(self.settings.drain_timeout, self.settings.keep_hosts):
            self.lock.tell(pid=plane.status().pid, admin=self.url)
            log.info("ready", extra={"admin": self.url, "state_dir": str(self.settings.state_dir)})
            end_requested = asyncio.create_task(self.ended.wait())
            waits: list[asyncio.Future[Any]] = [end_requested, plane.failed, serving, *([] if lost is None else [lost])]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            end_requested.cancel()
            if lost is not None and lost.done() and not self.ended.is_set():
                log.warning("no longer leads: the machines go on, and follow the proxy that leads next")
            elif not self.ended.is_set():
                plane.leave_hosts()
                log.critical("ending unexpectedly: the hosts keep serving, and the next proxy takes them over")
            else:
                log.info("shutting down: hosts drain for at most %g s", self.settings.drain_timeout)
        if plane.failed.done() and not (lost is not None and lost.done()):
            plane.failed.result()


def advertised_url(url: str) -> str:
    """Return the URL at which other machines reach a proxy's admin port."""
    return url.replace("//0.0.0.0:", f"//{socket.getfqdn()}:").replace("//[::]:", f"//{socket.getfqdn()}:")


def _make_plane(
    settings: ServeSettings,
    repository: Repository,
    url: str,
    token_file: Path | None,
    leading: Leading | None,
    agents_token: str | None,
) -> Plane:
    # Hosts run on this machine: if the proxy listens on all addresses, they reach it at the loopback address.
    here = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    options = settings.host_options(here, token_file)
    if options.kind != "none":
        host_program(options)
    single = None
    if settings.model_base_path is not None:
        single = single_model(settings.model_name, settings.model_base_path)
    base_settings = _base_settings(settings)
    return Plane(
        settings.control_options(),
        options,
        repository,
        settings.config,
        settings.model_settings,
        single,
        base_settings,
        settings.engine != "local",
        leading,
        _replicas(settings, url, agents_token),
    )


def _replicas(settings: ServeSettings, url: str, token: str | None) -> tuple[Driver, ReplicaOptions] | None:
    """Return the engine that places replicas, how they are started, and how many."""
    if settings.engine != "ray":
        return None
    driver = Driver(_RAY_DRIVER, {"address": settings.ray_address, "namespace": settings.ray_namespace})
    return driver, settings.replica_options(advertised_url(url), token)


def _make_server(settings: ServeSettings, app: ASGIApp) -> Server:
    certificate, key = settings.admin_tls or (None, None)
    return Server(
        uvicorn.Config(
            app,
            http=limited_protocol(most_connections(_MOST_AGENTS if settings.engine != "local" else _MOST_CONNECTIONS)),
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


def _check_records(repository: Repository) -> None:
    """Raise `ProxyError` if there is a record that this proxy cannot read: it could not lead."""
    repository.models()
    stored_placement(repository)
