# SPDX-License-Identifier: Apache-2.0
"""What this package needs of a store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from serving_proxy.artifacts.urls import StoreUrl

Data = bytes | memoryview


@dataclass(frozen=True)
class Entry:
    """An object of a store.

    Attributes
    ----------
    key : str
        Its path in the bucket.
    bytes : int
    tag : str
        Changes if the object is replaced.
    """

    key: str
    bytes: int
    tag: str


class Store(Protocol):
    """A bucket or file system; may be used by several threads at once.

    All methods raise `UnavailableError` for faults that may pass, `UnauthenticatedError` and `DeniedError` for
    credentials, and `NotFoundError`; messages name the URL.
    """

    def entries(self, url: StoreUrl) -> list[Entry]:
        """Return all objects below a place, sorted by key; none if there is nothing."""

    def folders(self, url: StoreUrl) -> list[str]:
        """Return the names of the folders directly below a place, sorted; none if there is nothing."""

    def read(self, url: StoreUrl, start: int = 0, length: int | None = None, tag: str | None = None) -> Data:
        """Read bytes of an object; fewer if it ends before.

        Parameters
        ----------
        start, length : int [byte]
            None: to its end.
        tag : str, optional
            Raise `PreconditionError` if the object has another tag.
        """

    def put(self, url: StoreUrl, data: bytes | Path) -> None:
        """Write an object, so that readers see all of it or nothing; replace an earlier one."""

    def create(self, url: StoreUrl, data: bytes) -> bool:
        """Write an object if there is none; return whether it was written."""

    def delete(self, url: StoreUrl) -> None:
        """Delete an object, if it exists."""
