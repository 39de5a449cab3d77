# SPDX-License-Identifier: Apache-2.0
"""A file that operators change while it is followed: `models.config`, and the settings of models."""

from __future__ import annotations

from pathlib import Path

from serving_proxy.files import read_regular

_MOST_BYTES = 16 * 1024 * 1024


class WatchedFile:
    """Watches a file: what it holds counts once two looks have found the same.

    Whoever writes into it without renaming it into place empties it first.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self._what = what
        self._seen: str | None = None
        self._taken: str | None = None

    def read(self) -> str:
        """Return what the file holds, at rest or not, as it is at the start.

        Raises
        ------
        ProxyError
            It cannot be read, is no regular file, or has more than 16 MiB.
        """
        self._seen = self._taken = self._text()
        return self._taken

    def look(self) -> str | None:
        """Return what the file holds if that is new and at rest; None otherwise.

        Raises
        ------
        ProxyError
            As `read` does.
        """
        before, self._seen = self._seen, self._text()
        if self._seen == self._taken or self._seen != before:
            return None
        self._taken = self._seen
        return self._taken

    def _text(self) -> str:
        return read_regular(self.path, _MOST_BYTES, self._what).decode("utf-8", "replace")
