# SPDX-License-Identifier: Apache-2.0
"""The transfers of the files that a state names: each version's files once, tried again until they are there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from serving_proxy.agent.artifacts import Artifacts
from serving_proxy.agent.localize import file_key
from serving_proxy.errors import ProxyError

log = logging.getLogger("serving_proxy.agent")

_FIRST_RETRY_S = 0.5


@dataclass
class _Transfer:
    task: asyncio.Task[None]
    done: int = 0
    total: int = 0
    fault: str = ""


class Fetches:
    """Fetches files beside everything else.

    Parameters
    ----------
    artifacts : Artifacts
    paths : dict of str to str
        Local path by `file_key`; complete files are added here.
    changed : callable
        Called when files are complete or could not be fetched.
    longest_retry_s : float [s]
    key_of : callable
        Returns what identifies the files of an entry; "": it needs none.
    """

    def __init__(
        self,
        artifacts: Artifacts,
        paths: dict[str, str],
        changed: Callable[[], None],
        longest_retry_s: float,
        key_of: Callable[[Mapping[str, Any]], str] = file_key,
    ) -> None:
        self._artifacts = artifacts
        self._paths = paths
        self._changed = changed
        self._longest_retry_s = longest_retry_s
        self._key_of = key_of
        self._transfers: dict[str, _Transfer] = {}
        self._names: dict[str, str] = {}

    def want(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        """Fetch the files of these versions, by `model/version`, and stop to fetch others."""
        keys = {key: entry for entry in entries.values() if (key := self._key_of(entry))}
        self._names = {name: self._key_of(entry) for name, entry in entries.items()}
        for key in [key for key in self._transfers if key not in keys]:
            self._transfers.pop(key).task.cancel()
        for key, entry in keys.items():
            if key not in self._paths and key not in self._transfers:
                self._transfers[key] = _Transfer(asyncio.create_task(self._fetch(key, entry)))

    @property
    def running(self) -> dict[str, str]:
        """Return how far the transfers are, by `model/version`."""
        return {name: _progress(found) for name, found in self._found() if not found.fault}

    @property
    def failed(self) -> dict[str, str]:
        """Return why files could not be fetched, by `model/version`."""
        return {name: found.fault for name, found in self._found() if found.fault}

    def _found(self) -> list[tuple[str, _Transfer]]:
        return [(name, self._transfers[key]) for name, key in self._names.items() if key in self._transfers]

    async def _fetch(self, key: str, entry: Mapping[str, Any]) -> None:
        delay = _FIRST_RETRY_S
        while True:
            try:
                self._paths[key] = await self._artifacts.fetch(entry, lambda done, total: self._tell(key, done, total))
                break
            except ProxyError as error:
                fault = str(error)
            except Exception as error:
                # A bug, or storage that fails in a way that nobody expects: other versions must not wait for it.
                log.exception("fetch")
                fault = f"{type(error).__name__}: {error}"
            found = self._transfers[key]
            if found.fault != fault:
                log.warning("%s", fault)
                found.fault = fault
                self._changed()
            await asyncio.sleep(min(delay, self._longest_retry_s))
            delay *= 2
        del self._transfers[key]
        self._changed()

    def _tell(self, key: str, done: int, total: int) -> None:
        found = self._transfers.get(key)
        if found is not None:
            found.done, found.total = done, total


def _progress(found: _Transfer) -> str:
    return f"{found.done / 1e6:.0f} of {found.total / 1e6:.0f} MB" if found.total else "waiting for its files"
