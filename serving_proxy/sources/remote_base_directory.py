# SPDX-License-Identifier: Apache-2.0
"""A base directory in a store: `<URL>/<version>/artifact.json`, or `<URL>/<version>/saved_model.pb`."""

from __future__ import annotations

import time
from collections import defaultdict

from serving_proxy.artifacts.manifest import NAME, read_artifact
from serving_proxy.artifacts.store import Entry
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.urls import StoreUrl
from serving_proxy.errors import InvalidError, NotFoundError, ProxyError
from serving_proxy.sources.base_directory import version_number

#: Time between two lists of a store, which are charged for.
PERIOD_S = 5.0


class RemoteBaseDirectory:
    """Watches a base directory in a store.

    An artifact with a manifest counts at once. Another folder counts once two lists have found the same objects, so
    that an upload under way does not count.

    Attributes
    ----------
    left_out, seen, empty
        As for `BaseDirectory`.
    error : str or None
        Why the store could not be read the last time.
    """

    def __init__(self, base: StoreUrl) -> None:
        self.base = base
        self.left_out: dict[str, str] = {}
        self.seen: frozenset[int] = frozenset()
        self.empty = False
        self.error: str | None = None
        self._before: dict[int, list[Entry]] = {}
        self._lists = 0
        self._listed_at = 0.0
        self._found: dict[int, tuple[StoreUrl, str]] = {}

    def look(self) -> dict[int, tuple[StoreUrl, str]] | None:
        """Return URL and stamp of each version that is at rest; None if the store cannot be read."""
        # The first two lists follow each other, so that a proxy that starts knows soon what is there.
        if self._lists >= 2 and time.monotonic() - self._listed_at < PERIOD_S:
            return self._found if self.error is None else None
        self._listed_at = time.monotonic()
        try:
            self._found = self._list()
        except ProxyError as error:
            self.error = str(error)
            return None
        self._lists += 1
        self.error = None
        return self._found

    def _list(self) -> dict[int, tuple[StoreUrl, str]]:
        store = open_store(self.base)
        prefix = f"{self.base.key}/" if self.base.key else ""
        folders: defaultdict[str, list[Entry]] = defaultdict(list)
        for entry in store.entries(self.base):
            folder, slash, _ = entry.key.removeprefix(prefix).partition("/")
            if slash and folder.isascii() and folder.isdecimal():
                folders[folder].append(entry)
        present: dict[int, list[Entry]] = {}
        found, left_out = {}, {}
        for folder, entries in sorted(folders.items()):
            number, why = version_number(folder)
            if number is None or number in present:
                left_out[folder] = why or "has the same number as another folder, which is used"
                continue
            present[number] = entries
            url = self.base / folder
            complete = f"{url.key}/{NAME}" in {entry.key for entry in entries}
            if not complete and self._before.get(number) != entries:
                continue
            try:
                known = self._found.get(number) if self._before.get(number) == entries else None
                found[number] = known or (url, read_artifact(store, url).identity[:16])
            except (NotFoundError, InvalidError) as error:
                left_out[folder] = str(error).removeprefix(f"{url}: ")
        self.left_out, self.seen = left_out, frozenset(present)
        self.empty = not present and self._lists > 0
        self._before = present
        return found
