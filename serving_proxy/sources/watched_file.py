# SPDX-License-Identifier: Apache-2.0
"""A file that operators may change while the proxy runs: `models.config`, and the settings of models."""

from __future__ import annotations

import asyncio
from pathlib import Path

from serving_proxy.errors import ProxyError
from serving_proxy.system.files import read_regular

_MOST_BYTES = 16 * 1024 * 1024
# Longest time that a look may block the loop; if storage hangs longer, the next look waits for it again.
_PATIENCE_S = 0.2


class WatchedFile:
    """Watches a file: its content counts once two looks have found the same. Used by the thread of one event loop.

    Programs that write a file in place empty it first, so that a single look may find it empty or truncated.

    Parameters
    ----------
    path : Path
    what : str
        Name of the file in messages, such as "settings of models".

    Attributes
    ----------
    at_rest : bool
        Whether the last two looks have found the same content, or the last look could not read the file.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self.at_rest = False
        self._what = what
        self._seen: str | None = None
        self._taken: str | None = None
        self._looking: asyncio.Task[str] | None = None

    async def read(self) -> str:
        """Return the present content, at rest or not, because at the start there is nothing to compare it with.

        Raises
        ------
        ProxyError
            It cannot be read, is not a regular file, or has more than 16 MiB.
        """
        self._seen = await asyncio.to_thread(self._read)
        return self._seen

    async def look(self) -> str | None:
        """Return the content if it is at rest and was not taken yet; None otherwise, and while storage hangs.

        Raises
        ------
        ProxyError
            As in `read`.
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
        """Mark a content as applied, so that looks no longer return it."""
        self._taken = text

    def _read(self) -> str:
        return read_regular(self.path, _MOST_BYTES, self._what).decode("utf-8", "replace")
