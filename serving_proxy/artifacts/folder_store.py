# SPDX-License-Identifier: Apache-2.0
"""Stores in a folder, such as one of NFS."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from serving_proxy.artifacts.file_errors import file_errors
from serving_proxy.artifacts.store import Entry
from serving_proxy.artifacts.urls import StoreUrl
from serving_proxy.errors import PreconditionError
from serving_proxy.system.files import open_regular, sync_folder


class FolderStore:
    """The files of this machine, as a store; links are followed."""

    def entries(self, url: StoreUrl) -> list[Entry]:
        """List all files below a folder, except those that are being written.

        A folder that cannot be listed is an error: whoever removes what no manifest names must see all of them.
        """
        found = []
        with file_errors(url):
            for path in _files(_path(url), frozenset()):
                with contextlib.suppress(FileNotFoundError):
                    if not path.name.startswith(".new-"):
                        found.append(_entry(path))
        return sorted(found, key=lambda entry: entry.key)

    def folders(self, url: StoreUrl) -> list[str]:
        """List the folders directly below a folder."""
        with file_errors(url):
            try:
                return sorted(path.name for path in _path(url).iterdir() if path.is_dir())
            except FileNotFoundError:
                return []

    def read(self, url: StoreUrl, start: int = 0, length: int | None = None, tag: str | None = None) -> bytes:
        """Read bytes of a file."""
        with file_errors(url), os.fdopen(open_regular(_path(url)), "rb") as file:
            if tag and _tag(os.fstat(file.fileno())) != tag:
                raise PreconditionError(f"{url}: written to while it was read, expected a file that stays the same")
            file.seek(start)
            return file.read(-1 if length is None else length)

    def put(self, url: StoreUrl, data: bytes | Path) -> None:
        """Write a file beside its place, sync it and rename it."""
        self._write(url, data, os.replace)

    def create(self, url: StoreUrl, data: bytes) -> bool:
        """Write a file if there is none; the link that publishes it fails otherwise."""
        try:
            self._write(url, data, _link)
        except _ExistsError:
            return False
        return True

    def delete(self, url: StoreUrl) -> None:
        """Delete a file."""
        with file_errors(url):
            _path(url).unlink(missing_ok=True)

    def _write(self, url: StoreUrl, data: bytes | Path, publish: Callable[[str, Path], None]) -> None:
        path = _path(url)
        with file_errors(url):
            path.parent.mkdir(parents=True, exist_ok=True)
            file, beside = tempfile.mkstemp(prefix=".new-", dir=path.parent)
            try:
                with os.fdopen(file, "wb") as written:
                    if isinstance(data, Path):
                        with data.open("rb") as source:
                            shutil.copyfileobj(source, written, 4 * 1024 * 1024)
                    else:
                        written.write(data)
                    written.flush()
                    os.fsync(written.fileno())
                publish(beside, path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(beside)
            sync_folder(path.parent)


class _ExistsError(Exception):
    """There is a file already where one is to be created."""


def _link(source: str, target: Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError as error:
        raise _ExistsError from error


def _path(url: StoreUrl) -> Path:
    return Path("/", url.key)


def _files(folder: Path, above: frozenset[tuple[int, int]]) -> Iterator[Path]:
    """Yield the files below a folder, also behind links, except those that lead back to a folder above."""
    # Somebody may remove folders meanwhile.
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        found = folder.stat()
        if (found.st_dev, found.st_ino) in above:
            return
        above |= {(found.st_dev, found.st_ino)}
        try:
            with os.scandir(folder) as items:
                there = list(items)
        except PermissionError as error:
            raise PermissionError(error.errno, f"{folder}: {error.strerror}") from error
        for item in there:
            path = Path(item.path)
            if not item.is_dir():
                yield path
            # Only root can list what fsck has left at the root of a file system.
            elif item.name != "lost+found":
                yield from _files(path, above)


def _entry(path: Path) -> Entry:
    found = path.stat()
    return Entry(str(path).strip("/"), found.st_size, _tag(found))


def _tag(found: os.stat_result) -> str:
    return f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}"
