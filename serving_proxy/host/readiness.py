# SPDX-License-Identifier: Apache-2.0
"""Readiness of the host and of each model, for probes.

A host is ready once it has loaded the first desired state, until it is told to stop. A model is ready while one of its
versions is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from processor import Host, ProcessorError
from serving_proxy.host.request_memory import RequestMemory

log = logging.getLogger("serving_proxy.host")

_PERIOD_S = 0.2
# Until the host has been ready: clients wait for it.
_FIRST_PERIOD_S = 0.02
_PASSING = frozenset({"loading", "warming", "draining"})

Listener = Callable[[bool, dict[str, bool]], Awaitable[None]]


class Readiness:
    """Polls a host's state, and notifies a listener of changes."""

    def __init__(self, host: Host, listener: Listener, request_memory: RequestMemory | None = None) -> None:
        self._host = host
        self._listener = listener
        self._request_memory = request_memory
        self._stopping = False
        self._told: tuple[bool, dict[str, bool]] | None = None
        self._was_ready = asyncio.Event()
        self.state = "starting"

    @property
    def ready(self) -> bool:
        """Return whether the host accepts requests."""
        return self.state == "ready"

    async def wait(self) -> None:
        """Wait until the host accepts requests for the first time."""
        await self._was_ready.wait()

    async def watch(self) -> None:
        """Poll until the task is cancelled."""
        while True:
            try:
                # On another thread, because the library may be busy with the state that is queried.
                await self._update(await asyncio.to_thread(self._host.status))
            except ProcessorError as error:
                log.warning("status: %s", error)
            await asyncio.sleep(_PERIOD_S if self._was_ready.is_set() else _FIRST_PERIOD_S)

    async def stop(self) -> None:
        """Report from now on that nothing is ready."""
        self._stopping = True
        models = {} if self._told is None else self._told[1]
        await self._tell("draining", dict.fromkeys(models, False))

    async def _update(self, status: Mapping[str, Any]) -> None:
        if self._request_memory is not None:
            self._request_memory.loading = _is_loading(status)
        if not self._stopping:
            await self._tell(str(status["state"]), ready_models(status))

    async def _tell(self, state: str, models: dict[str, bool]) -> None:
        if state != self.state:
            log.info("host is %s", state)
        self.state = state
        if self._told != (self.ready, models):
            gone = dict.fromkeys(self._told[1], False) if self._told is not None else {}
            self._told = (self.ready, models)
            await self._listener(self.ready, gone | models)
        if self.ready:
            self._was_ready.set()


def _is_loading(status: Mapping[str, Any]) -> bool:
    """Return whether a version is being loaded or unloaded."""
    versions = (version for model in status["models"].values() for version in model["versions"].values())
    return any(
        state["state"] in _PASSING for version in versions for state in (version, version.get("replacement")) if state
    )


def ready_models(status: Mapping[str, Any]) -> dict[str, bool]:
    """Return for each model whether one of its versions is ready."""
    return {
        name: any(version["state"] == "ready" for version in model["versions"].values())
        for name, model in status["models"].items()
    }
