# SPDX-License-Identifier: Apache-2.0
"""Stores in any other file system for which fsspec has a driver, such as HDFS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from serving_proxy.artifacts.file_errors import file_errors
from serving_proxy.artifacts.store import Entry
from serving_proxy.artifacts.urls import StoreUrl
from serving_proxy.errors import InvalidError, PreconditionError, UnavailableError


class FsspecStore:
    """A file system of fsspec.

    Such file systems have no conditional write in common: `create` writes beside and moves after it has found nothing
    there, so two proxies that create the same object at the same moment are told apart only by what the move permits.
    """

    def __init__(self, scheme: str, bucket: str, **options: Any) -> None:
        try:
            import fsspec

            self._files = fsspec.filesystem(scheme, **({"host": bucket} if bucket else {}), **options)
        except (ImportError, ValueError) as error:
            raise InvalidError(
                f"{scheme}://{bucket}: {error}; in a checkout: pip install '.[fsspec]' and the driver of {scheme}"
            ) from error
        except OSError as error:
            raise UnavailableError(f"{scheme}://{bucket}: {error}, expected a file system that answers") from error

    def entries(self, url: StoreUrl) -> list[Entry]:
        """List all files below a folder."""
        with file_errors(url):
            self._files.invalidate_cache()
            try:
                found = self._files.find(self._path(url), detail=True)
            except FileNotFoundError:
                found = {}
        entries = [Entry(path.strip("/"), int(info["size"]), self._tag(info)) for path, info in found.items()]
        return sorted(entries, key=lambda entry: entry.key)

    def folders(self, url: StoreUrl) -> list[str]:
        """List the folders directly below a folder."""
        with file_errors(url):
            self._files.invalidate_cache()
            try:
                found = self._files.ls(self._path(url), detail=True)
            except FileNotFoundError:
                found = []
        return sorted(
            info["name"].rstrip("/").rpartition("/")[2] for info in found if str(info["type"]).lower() == "directory"
        )

    def read(self, url: StoreUrl, start: int = 0, length: int | None = None, tag: str | None = None) -> bytes:
        """Read bytes of a file."""
        with file_errors(url):
            if tag and self._tag(self._files.info(self._path(url))) != tag:
                raise PreconditionError(f"{url}: written to while it was read, expected a file that stays the same")
            with self._files.open(self._path(url), "rb", cache_type="none") as file:
                file.seek(start)
                data: bytes = file.read() if length is None else file.read(length)
        return data

    def put(self, url: StoreUrl, data: bytes | Path) -> None:
        """Write a file beside its place and move it."""
        path = self._path(url)
        beside = f"{path}.new"
        with file_errors(url):
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            if isinstance(data, Path):
                self._files.put_file(str(data), beside)
            else:
                self._files.pipe_file(beside, data)
            if self._files.exists(path):
                self._files.rm_file(path)
            self._files.mv(beside, path)

    def create(self, url: StoreUrl, data: bytes) -> bool:
        """Write a file if there is none."""
        with file_errors(url):
            self._files.invalidate_cache()
            if self._files.exists(self._path(url)):
                return False
        self.put(url, data)
        return True

    def delete(self, url: StoreUrl) -> None:
        """Delete a file."""
        with file_errors(url):
            if self._files.exists(self._path(url)):
                self._files.rm_file(self._path(url))

    def _path(self, url: StoreUrl) -> str:
        return f"/{url.key}"

    def _tag(self, info: dict[str, Any]) -> str:
        written = info.get("mtime", info.get("last_modified", info.get("created", "")))
        return f"{info['size']}-{written}"
