# SPDX-License-Identifier: Apache-2.0
"""A file that operators change while it is followed: `models.config`, and the settings of models."""

from __future__ import annotations

import asyncio
from pathlib import Path

from serving_proxy.errors import ProxyError
from serving_proxy.system.files import read_regular

_MOST_BYTES = 16 * 1024 * 1024
# How long a look may hold up others; storage that hangs longer is asked again by the next one.
_PATIENCE_S = 0.2


class WatchedFile:
    """Watches a file: what it holds counts once two looks have found the same. For the thread of one event loop.

    Programs that write a file in place empty it first, so that one look may find it empty or cut off.

    Parameters
    ----------
    path : Path
    what : str
        Name of the file in messages, such as "settings of models".

    Attributes
    ----------
    at_rest : bool
        Whether the last two looks have found the same, or the last one none that can be read.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self.at_rest = False
        self._what = what
        self._seen: str | None = None
        self._taken: str | None = None
        self._looking: asyncio.Task[str] | None = None

    async def read(self) -> str:
        """Return what the file holds now, at rest or not: at the start there is nothing else to go by.

        Raises
        ------
        ProxyError
            It cannot be read, is no regular file, or has more than 16 MiB.
        """
        self._seen = await asyncio.to_thread(self._read)
        return self._seen

    async def look(self) -> str | None:
        """Return what the file holds if that is at rest and not taken yet; None otherwise, and while storage hangs.

        Raises
        ------
        ProxyError
            As `read` does.
        """
        if self._looking is None:
            self._looking = asyncio.create_task(asyncio.to_thread(self._read))
        await asyncio.wait([self._looking], timeout=_PATIENCE_S)
        if not self._looking.done():
            return None
        looked, self._looking = self._looking, None
        before = self._seen
        try:
            self._seen = looked.result()
        except ProxyError:
            self.at_rest = True
            raise
        self.at_rest = self._seen == before
        return self._seen if self.at_rest and self._seen != self._taken else None

    def take(self, text: str) -> None:
        """Say that a text of this file has been acted upon, so that looks return it no more."""
        self._taken = text

    def _read(self) -> str:
        return read_regular(self.path, _MOST_BYTES, self._what).decode("utf-8", "replace")
