# SPDX-License-Identifier: Apache-2.0
"""Open stores: which library reads which kind of store."""

from __future__ import annotations

from functools import lru_cache

from serving_proxy.artifacts.store import Store
from serving_proxy.artifacts.urls import StoreUrl


def open_store(url: StoreUrl) -> Store:
    """Return the store that a URL is in.

    Raises
    ------
    InvalidError
        The library that reads such stores is not installed.
    """
    return _open(url.scheme, url.bucket)


def forget_stores() -> None:
    """Open stores anew from now on, with the present environment."""
    _open.cache_clear()


@lru_cache(maxsize=16)
def _open(scheme: str, bucket: str) -> Store:
    if scheme == "file":
        from serving_proxy.artifacts.folder_store import FolderStore

        return FolderStore()
    if scheme in {"s3", "gs", "az"}:
        from serving_proxy.artifacts.object_store import ObjectStore

        return ObjectStore(scheme, bucket)
    from serving_proxy.artifacts.fsspec_store import FsspecStore

    return FsspecStore(scheme, bucket)
