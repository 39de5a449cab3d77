# SPDX-License-Identifier: Apache-2.0
"""Marks of blobs that no artifact needs; publishers and cleaners agree by them on what may be removed.

unused/SHA256         since when no manifest has named the blob
unused/SHA256.claim   who is deciding about this blob at the moment; created by a conditional request

A blob is removed only if its mark has been there for longer than any upload takes, and by whoever has the claim. A
publisher reads the marks before it lists the blobs, and takes the marks off those that it needs: so either it does not
find the blob and sends it, or the blob stays.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import time
from collections.abc import Iterator

from serving_proxy.artifacts.store import Store
from serving_proxy.artifacts.urls import StoreUrl
from serving_proxy.errors import NotFoundError, UnavailableError

FOLDER = "unused"
_MARK = re.compile(r"[0-9a-f]{64}")
_CLAIM = ".claim"


class ClaimedError(UnavailableError):
    """Somebody else decides about a blob at this moment."""


class Marks:
    """The marks of a model store.

    Parameters
    ----------
    store : Store
    root : StoreUrl
        The model store.
    """

    def __init__(self, store: Store, root: StoreUrl) -> None:
        self._store = store
        self._folder = root / FOLDER
        self._id = secrets.token_hex(8)

    def names(self) -> set[str]:
        """Return the SHA-256 of all marked blobs."""
        return {name for name in self._listed() if _MARK.fullmatch(name)}

    def set(self, sha256: str, now: float) -> None:
        """Mark a blob, unless it is marked; `now` is the time [s]."""
        self._store.create(self._folder / sha256, json.dumps({"since": now}).encode())

    def since(self, sha256: str) -> float | None:
        """Return since when a blob has been marked [s]; None: it is not, or its mark is damaged."""
        return self._number(sha256, "since")

    def remove(self, sha256: str) -> None:
        """Take off the mark of a blob that is needed.

        Raises
        ------
        ClaimedError
            Somebody else decides about the blob, and may remove it.
        """
        with self.claimed(sha256, time.time()):
            self.forget(sha256)

    def forget(self, sha256: str) -> None:
        """Delete the mark of a blob that this process has claimed."""
        self._store.delete(self._folder / sha256)

    @contextlib.contextmanager
    def claimed(self, sha256: str, now: float) -> Iterator[None]:
        """Decide alone about a blob while the block runs; raise ClaimedError if somebody else does."""
        claim = self._folder / f"{sha256}{_CLAIM}"
        body = json.dumps({"by": self._id, "since": now}).encode()
        if not self._store.create(claim, body) and not self._is_own(claim):
            raise ClaimedError(f"{claim}: a blob is being removed or kept, expected that to end within moments")
        try:
            yield
        finally:
            self._store.delete(claim)

    def remove_claims(self, before: float) -> None:
        """Remove claims of processes that have ended meanwhile: those that were made before a time [s]."""
        for name in self._listed():
            since = self._number(name, "since") if name.endswith(_CLAIM) else None
            if since is not None and since < before:
                self._store.delete(self._folder / name)

    def _is_own(self, claim: StoreUrl) -> bool:
        """Return whether a claim is of this process: the answer to an earlier attempt may have been lost."""
        try:
            return self._id.encode() in bytes(self._store.read(claim))
        except NotFoundError:
            return False

    def _listed(self) -> list[str]:
        return [entry.key.rpartition("/")[2] for entry in self._store.entries(self._folder)]

    def _number(self, name: str, key: str) -> float | None:
        try:
            return float(json.loads(bytes(self._store.read(self._folder / name)))[key])
        except (NotFoundError, ValueError, KeyError, TypeError):
            return None
