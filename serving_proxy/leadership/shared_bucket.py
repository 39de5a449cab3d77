# SPDX-License-Identifier: Apache-2.0
"""A bucket of S3, Google Cloud Storage or Azure as the store that several proxies share."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator

from serving_proxy.artifacts.object_store import ObjectStore
from serving_proxy.artifacts.store import Store
from serving_proxy.artifacts.urls import StoreUrl
from serving_proxy.errors import NotFoundError, ProxyError, UnavailableError

# A request that takes longer has failed: otherwise a store that is silent would cost the lease later than necessary.
_REQUEST_S = 5.0
_CHECKS = "checks"


class SharedBucket:
    """Objects below a place of a bucket, each created by a conditional request (`If-None-Match: *`).

    Parameters
    ----------
    url : StoreUrl
    store : Store, optional
        What reads the bucket; by default one with short time limits.
    request_s : float [s]
        Longest time of one request, with its body, without `store`.

    Raises
    ------
    InvalidError
        The library that reads such stores is not installed.
    """

    may_be_unmounted = False

    def __init__(self, url: StoreUrl, store: Store | None = None, request_s: float = _REQUEST_S) -> None:
        self.url = url
        self._store: Store = store or ObjectStore(url.scheme, url.bucket, request_s)
        self._is_checked = False

    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless there is one.

        Raises
        ------
        UnavailableError
            The store cannot be reached, or it overwrites objects although the request forbids it.
        """
        with self._faults(name):
            self._check_conditions()
            return self._store.create(self.url / name, data)

    def put(self, name: str, data: bytes) -> None:
        """Write an object, or replace it as a whole."""
        with self._faults(name):
            self._store.put(self.url / name, data)

    def get(self, name: str) -> bytes | None:
        """Read an object; None if there is none."""
        with self._faults(name):
            try:
                return bytes(self._store.read(self.url / name))
            except NotFoundError as error:
                if "no bucket" in str(error):
                    raise
                return None

    def numbers(self, folder: str) -> list[int]:
        """Return the numbers of the objects in a folder, sorted."""
        with self._faults(folder):
            names = [entry.key.rpartition("/")[2] for entry in self._store.entries(self.url / folder)]
        return sorted(int(name) for name in names if name.isdecimal())

    def remove(self, name: str) -> None:
        """Remove an object, if there is one."""
        with self._faults(name):
            self._store.delete(self.url / name)

    def _check_conditions(self) -> None:
        """Check once that the store refuses to create an object twice; some servers ignore the condition."""
        if self._is_checked:
            return
        probe = self.url / _CHECKS / secrets.token_hex(8)
        self._store.create(probe, b"")
        try:
            if self._store.create(probe, b""):
                raise UnavailableError(
                    f"--shared-store {self.url}: the store overwrites an object that must not exist, "
                    "expected one with conditional requests (If-None-Match)"
                )
        finally:
            self._store.delete(probe)
        self._is_checked = True

    @contextlib.contextmanager
    def _faults(self, name: str) -> Iterator[None]:
        """Let whoever asked the proxy see a fault of its store, rather than one of the request."""
        try:
            yield
        except UnavailableError:
            raise
        except ProxyError as error:
            raise UnavailableError(f"{error}: the store that proxies share ({name})") from error
