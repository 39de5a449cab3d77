# SPDX-License-Identifier: Apache-2.0
"""The store that several proxies share: small objects, of which each can be created once."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from serving_proxy.artifacts.urls import parse_url
from serving_proxy.errors import ExhaustedError, InvalidError, NotFoundError, UnavailableError
from serving_proxy.system.files import private_folder, read_regular, replace, sync_folder

# Schemes of stores with conditional requests.
_BUCKETS = ("s3", "gs", "az")
_MOST_BYTES = 1024 * 1024 * 1024


class OtherStoreError(UnavailableError):
    """The store is not the one that this process has used until now."""


class SharedStore(Protocol):
    """Objects by name; a name is `FOLDER/NUMBER`.

    The only condition that a store must be able to check is that an object does not exist yet. Every call may block,
    and raises UnavailableError if the store cannot be reached.

    Attributes
    ----------
    may_be_unmounted : bool
        If it is empty, it may be the place at which the store is not mounted yet.
    """

    may_be_unmounted: bool

    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless there is one, and return whether it was written; durable when this returns."""

    def put(self, name: str, data: bytes) -> None:
        """Write an object, or replace it as a whole."""

    def get(self, name: str) -> bytes | None:
        """Read an object; None if there is none."""

    def numbers(self, folder: str) -> list[int]:
        """Return the numbers of the objects in a folder, sorted."""

    def remove(self, name: str) -> None:
        """Remove an object, if there is one."""


class SharedFolder:
    """A folder of a file system that all proxies mount, or of one machine.

    Every call raises OtherStoreError once a folder in it is gone that was there before: if the file system is not
    mounted any more, the folder is an empty one, which must not look like a new store.

    Parameters
    ----------
    folder : Path
    """

    may_be_unmounted = True

    def __init__(self, folder: Path) -> None:
        self.folder = private_folder(folder, "--shared-store")
        # The folders in it that this process has seen or made.
        self._seen: set[str] = set()

    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless there is one: a link to a complete file is made by one proxy only."""
        path = self.folder / name
        beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        with self._faults(name):
            self._make_folder(path)
            try:
                replace(beside, data)
                try:
                    os.link(beside, path)
                except FileExistsError:
                    return False
                sync_folder(path.parent)
                return True
            finally:
                with contextlib.suppress(OSError):
                    beside.unlink(missing_ok=True)

    def put(self, name: str, data: bytes) -> None:
        """Write an object, or replace it as a whole."""
        path = self.folder / name
        with self._faults(name):
            self._make_folder(path)
            replace(path, data)

    def get(self, name: str) -> bytes | None:
        """Read an object; None if there is none."""
        path = self.folder / name
        with self._faults(name):
            if not self._has(path.parent.name):
                return None
            try:
                return read_regular(path, _MOST_BYTES)
            except NotFoundError:
                return None

    def numbers(self, folder: str) -> list[int]:
        """Return the numbers of the objects in a folder, sorted."""
        with self._faults(folder):
            if not self._has(folder):
                return []
            return sorted(int(name) for name in os.listdir(self.folder / folder) if name.isdecimal())

    def remove(self, name: str) -> None:
        """Remove an object, if there is one."""
        with self._faults(name):
            (self.folder / name).unlink(missing_ok=True)

    def _make_folder(self, path: Path) -> None:
        if not self._has(path.parent.name):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            self._seen.add(path.parent.name)

    def _has(self, name: str) -> bool:
        """Return whether the store has a folder; raise OSError or OtherStoreError if the store is gone."""
        # Asked before the look: another thread may make the folder right after it.
        was_there = name in self._seen
        # Twice: the store may have come back after the first look had missed it.
        if not self._is_there(name) and not (was_there and self._is_there(name)):
            if was_there:
                raise OtherStoreError(
                    f"{self.folder}: '{name}' is no longer there, expected the earlier store; is it mounted?"
                )
            return False
        self._seen.add(name)
        return True

    def _is_there(self, name: str) -> bool:
        """Look for a folder once; raise OSError if the folder of the store is gone."""
        try:
            (self.folder / name).stat()
        except FileNotFoundError:
            self.folder.stat()
            return False
        return True

    @contextlib.contextmanager
    def _faults(self, name: str) -> Iterator[None]:
        try:
            yield
        except (ExhaustedError, OtherStoreError):
            raise
        except (OSError, InvalidError) as error:
            said = getattr(error, "strerror", None) or str(error)
            raise UnavailableError(f"{self.folder / name}: {said}, expected the store that proxies share") from error


def open_shared_store(url: str, request_s: float | None = None) -> SharedStore:
    """Open the store of a path, or of a URL of a folder or bucket.

    Parameters
    ----------
    url : str
    request_s : float or None [s]
        Longest time of one request to a bucket; None: one that is enough for large objects.

    Raises
    ------
    InvalidError
        It is of another kind, cannot be made, or needs a library that is not installed.
    """
    place = urlsplit(url)
    if place.scheme == "file" and place.netloc in {"", "localhost"}:
        return SharedFolder(Path(unquote(place.path)))
    if place.scheme in _BUCKETS:
        from serving_proxy.leadership.shared_bucket import SharedBucket

        place_url = parse_url(url, "--shared-store")
        return SharedBucket(place_url) if request_s is None else SharedBucket(place_url, request_s=request_s)
    if place.scheme or not url:
        raise InvalidError(
            f"--shared-store {url}: expected a folder, or a URL such as file:///mnt/recprocessor or s3://BUCKET/PATH"
        )
    return SharedFolder(Path(url))
