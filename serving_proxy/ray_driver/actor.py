# SPDX-License-Identifier: Apache-2.0
"""The actor of a replica: an agent that follows the proxy, and a host, which serves what the agent writes.

Clients connect to the host directly; no request passes through Ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from serving_proxy.agent.process import run
from serving_proxy.agent.settings import AgentSettings
from serving_proxy.errors import ProxyError
from serving_proxy.hosts.command import LaunchOptions
from serving_proxy.ray_driver.core_lease import CoreLease
from serving_proxy.ray_driver.host_keeper import HostKeeper
from serving_proxy.system.files import private_folder, replace
from serving_proxy.version import version

log = logging.getLogger("serving_proxy.replica")

_STEP_S = 0.1
_RETRY_S = 1.0


def default_folder(namespace: str) -> Path:
    """Return the folder of a node in which replicas keep their state and copies of models."""
    return Path(tempfile.gettempdir()) / f"recprocessor-{getpass.getuser()}" / namespace


class Replica:
    """A replica. Its methods may be called by several threads of Ray.

    Parameters
    ----------
    name : str
    spec : mapping
        `identity`; `namespace`; `folder` or null; `cores`; `model_cache_mb` or null; `host`: the fields of
        LaunchOptions, whose address may be empty for that of the node.
    access : mapping
        `servers`, and `token` and `ca` (the contents of files) or null. The token is in no log and no view.
    address : str
        Address of the node.
    """

    def __init__(self, name: str, spec: Mapping[str, Any], access: Mapping[str, Any], address: str) -> None:
        # Requests, logs and models are private to this user.
        os.umask(0o077)
        self._name, self._spec, self._address = name, dict(spec), address
        self._access = dict(access)
        root = Path(spec["folder"]) if spec["folder"] else default_folder(spec["namespace"])
        self._models = private_folder(root / "models", "--replica-folder")
        self._state_dir = private_folder(root / name, "--replica-folder")
        self._lease = CoreLease(int(spec["cores"]))
        # Before the agent begins, which is to run on these CPUs; if it fails, the host tries it again.
        with contextlib.suppress(ProxyError):
            self._lease.take()
        self._keeper = HostKeeper(_launch_options(spec["host"], address), self._state_dir, self._lease)
        self._lock = threading.Lock()
        self._fault = ""
        self._ended = False
        self._stop_agent: Callable[[], object] = _nothing
        self._threads = [threading.Thread(target=loop, daemon=True) for loop in (self._keep_host, self._keep_agent)]
        for thread in self._threads:
            thread.start()

    def status(self) -> dict[str, Any]:
        """Return what `ReplicaSeen` has, except what only the driver knows."""
        keeper = self._keeper
        return {
            "address": self._address,
            "pid": os.getpid(),
            "spec": self._spec["identity"],
            "servers": list(self._access["servers"]),
            "state": keeper.state,
            "ready_s": keeper.ready_s,
            "drains": keeper.drains,
            "drained": keeper.drained,
            "cores": self._lease.text,
            "restarts": keeper.restarts,
            "cpu_s": keeper.cpu_s,
            "note": "; ".join(filter(None, (keeper.note, self._fault, self._release_note()))),
        }

    def follow(self, access: Mapping[str, Any]) -> None:
        """Follow other proxies from now on; the host goes on."""
        with self._lock:
            self._access = dict(access)
            self._stop_agent()

    def drain(self) -> None:
        """Let the host finish its requests; the agent reports until it has ended."""
        self._keeper.drain()

    def end(self) -> None:
        """End the agent of a replica that has been drained, and remove its folder, except logs of requests."""
        with self._lock:
            self._ended = True
            self._stop_agent()
        self._threads[1].join(10.0)
        self._lease.release()
        if not any(self._state_dir.glob("hosts/*/requests/*/*")):
            shutil.rmtree(self._state_dir, ignore_errors=True)

    def _keep_host(self) -> None:
        pause = threading.Event()
        while not self._keeper.drained:
            try:
                self._keeper.step()
            except Exception:
                # A fault of the disk, or a bug: the host goes on.
                log.exception("host")
            pause.wait(_STEP_S)
        # The host ends with this thread.
        threading.Event().wait()

    def _keep_agent(self) -> None:
        pause, said = threading.Event(), ""
        while not self._ended:
            try:
                asyncio.run(self._run_agent())
            except Exception as error:
                # Without an agent the host would serve the same versions for good.
                if said != str(error):
                    said = str(error)
                    log.warning("agent: %s", said, exc_info=not isinstance(error, ProxyError | OSError | ValueError))
                self._fault = f"agent: {said or type(error).__name__}"
                pause.wait(_RETRY_S)

    async def _run_agent(self) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            if self._ended:
                return
            settings = self._agent_settings()
            self._stop_agent = lambda: loop.call_soon_threadsafe(ended.set)
            self._fault = ""
        self._pin()
        try:
            await run(settings, ended)
        finally:
            with self._lock:
                self._stop_agent = _nothing

    def _pin(self) -> None:
        """Keep the agent on the CPUs of its host, and away from those of other replicas."""
        if self._lease.cpus:
            os.sched_setaffinity(0, self._lease.cpus)

    def _agent_settings(self) -> AgentSettings:
        values: dict[str, Any] = {
            "server": tuple(self._access["servers"]),
            "state_dir": self._state_dir,
            "machine": self._name,
            "address": self._address,
            "model_cache": self._models,
            "model_cache_mb": self._spec["model_cache_mb"],
        }
        for key, field in (("token", "token_file"), ("ca", "ca_file")):
            if self._access[key] is not None:
                values[field] = self._state_dir / f"proxy.{key}"
                replace(values[field], self._access[key].encode())
        return AgentSettings(**values)

    def _release_note(self) -> str:
        here, wanted = version(), self._spec["release"]
        return "" if here == wanted else f"release {here}, the proxy has {wanted}"


def _nothing() -> None:
    """Stop an agent that does not run."""


def _launch_options(found: Mapping[str, Any], address: str) -> LaunchOptions:
    paths = {"tls_cert", "tls_key", "client_ca", "token_file"}
    values: dict[str, Any] = {
        field.name: Path(found[field.name])
        if field.name in paths and found[field.name]
        else tuple(found[field.name])
        if isinstance(found[field.name], list)
        else found[field.name]
        for field in fields(LaunchOptions)
        if field.name in found
    }
    return LaunchOptions(**{**values, "address": values["address"] or address})
