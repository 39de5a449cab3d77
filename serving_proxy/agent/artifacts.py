# SPDX-License-Identifier: Apache-2.0
"""Get the files of versions to the machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

from serving_proxy.artifacts.machine_store import MachineStore
from serving_proxy.artifacts.urls import is_url
from serving_proxy.errors import NotFoundError, PreconditionError

Told = Callable[[int, int], None]
"""Called with the number of bytes that are there and the number of all bytes."""


class Artifacts(Protocol):
    """Gets the files of versions to the machine."""

    async def fetch(self, entry: Mapping[str, Any], told: Told) -> str:
        """Return the local folder of a version once its files are complete.

        Parameters
        ----------
        entry : dict
            The version's entry of the proxy's desired state: `path`, `files` and others.
        told : callable

        Raises
        ------
        ProxyError
            They cannot be fetched now; the message says why.
        """


class SharedFolders:
    """Files that lie under the same path on all machines, as on a shared file system."""

    async def fetch(self, entry: Mapping[str, Any], told: Told) -> str:
        """Return the path that the proxy knows, if there is a folder."""
        path = str(entry["path"])
        # A file system of another machine may be slow.
        if not await asyncio.to_thread(os.path.isdir, path):
            raise NotFoundError(f"{path}: not on this machine, expected the folder that the proxy has checked")
        return path


class StoredArtifacts:
    """Files that the proxy has put into a store, or found there; others are under the same path on all machines.

    Parameters
    ----------
    store : callable
        Returns the content store of this machine; called when a model of a store is first needed.
    """

    def __init__(self, store: Callable[[], MachineStore]) -> None:
        self._open = store
        self._store: MachineStore | None = None
        self._shared = SharedFolders()

    async def fetch(self, entry: Mapping[str, Any], told: Told) -> str:
        """Return the folder of a version in the content store, once it is complete and checked."""
        url = stored_url(entry)
        if url is None:
            return await self._shared.fetch(entry, told)
        cancelled = False
        if self._store is None:
            self._store = await asyncio.to_thread(self._open)
        store = self._store
        try:
            fetched = await asyncio.to_thread(store.fetch, url, lambda: cancelled, told)
        finally:
            # The thread cannot be stopped from outside; it checks this flag.
            cancelled = True
        deployed = (entry.get("files") or {}).get("sha256")
        if None not in {deployed, fetched.sha256} and deployed != fetched.sha256:
            raise PreconditionError(f"{url}: SHA-256 {fetched.sha256}, expected {deployed} as it was deployed")
        return str(fetched.path)

    async def retain(self, paths: Collection[str]) -> None:
        """Name the folders that this machine still needs; the others make room when it is needed."""
        if self._store is not None:
            await asyncio.to_thread(self._store.retain, {Path(path) for path in paths})


def stored_url(entry: Mapping[str, Any]) -> str | None:
    """Return the URL of a version's files in a store, or None if the proxy knows none."""
    url = (entry.get("annotations") or {}).get("stored")
    return url if isinstance(url, str) and is_url(url) else None
