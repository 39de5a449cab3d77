# SPDX-License-Identifier: Apache-2.0
"""Get the files of versions to the machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from serving_proxy.errors import NotFoundError

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
