# SPDX-License-Identifier: Apache-2.0
"""Copy the segments of a timeline between a store and a folder: from the trainer, and to the hosts.

Segments never change, but compaction and truncation remove some, and after a truncation others may appear under the
same names. They are told apart by the SHA-256 with which each segment ends (docs/delta_format.md).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from pathlib import Path

from serving_proxy.artifacts.fetching import fetch_file
from serving_proxy.artifacts.manifest import RemoteFile
from serving_proxy.artifacts.store import Entry
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.urls import StoreUrl, parse_url
from serving_proxy.errors import InvalidError, NotFoundError, PreconditionError
from serving_proxy.system.files import private_folder, read_regular, replace, sync_folder

_SEGMENT = re.compile(r"\d{16}-\d{16}\.delta")
_COPY = re.compile(r"[0-9a-f]{32}")
#: Name of the folder of all copies.
FOLDER = "timelines"
_URL = ".url"
_HASH_BYTES = 32
_MOST_URL_BYTES = 4096
_PATIENCE_S = 2.0


class TimelineCopy:
    """A folder that follows a timeline in a store; hosts follow the folder.

    Parameters
    ----------
    folder : Path
    url : StoreUrl
    """

    def __init__(self, folder: Path, url: StoreUrl) -> None:
        self.folder = folder
        self.url = url
        self._tags: dict[str, str] = {}

    def step(self) -> int:
        """Copy new segments, oldest first, then remove those that the store has no longer; return how many are new.

        Raises
        ------
        NotFoundError
            The store has no segment any more, but the folder has: it keeps them.
        InvalidError
            A segment is damaged; those before it have been copied.
        UnavailableError, UnauthenticatedError, DeniedError, ExhaustedError
        """
        store = open_store(self.url)
        there = _segments(store.entries(self.url), self.url)
        here = {path.name for path in self.folder.iterdir() if _SEGMENT.fullmatch(path.name)}
        if here and not there:
            raise NotFoundError(f"{self.url}: no segments any more, expected a timeline; the copies stay")
        new = 0
        for name, entry in sorted(there.items()):
            if name in here and self._is_same(name, entry):
                continue
            self._fetch(name, entry)
            new += 1
        for name in here - there.keys():
            (self.folder / name).unlink(missing_ok=True)
        for path in self.folder.glob(".*.delta.*"):
            # What a break has left of a segment that is gone.
            if path.name[1:].partition(".delta")[0] + ".delta" not in there:
                path.unlink(missing_ok=True)
        return new

    def _is_same(self, name: str, entry: Entry) -> bool:
        if self._tags.get(name) == entry.tag:
            return True
        path = self.folder / name
        if path.stat().st_size != entry.bytes:
            return False
        theirs = bytes(open_store(self.url).read(self.url / name, entry.bytes - _HASH_BYTES, _HASH_BYTES))
        if theirs != segment_hash(path):
            return False
        self._tags[name] = entry.tag
        return True

    def _fetch(self, name: str, entry: Entry) -> None:
        partial, beside = self.folder / f".{name}.part", self.folder / f".{name}.new"
        file = RemoteFile(name, self.url / name, entry.bytes, tag=entry.tag)
        with contextlib.suppress(PreconditionError):
            # Replaced while it was read: the next step finds the other one.
            fetch_file(
                open_store(self.url), file, partial, beside, lambda: False, lambda count: None, patience_s=_PATIENCE_S
            )
            check_segment(beside, str(self.url / name))
            os.replace(beside, self.folder / name)
            sync_folder(self.folder)
            self._tags[name] = entry.tag


class TimelineUpload:
    """A store that follows the timeline of a folder, to which a trainer writes.

    Parameters
    ----------
    folder : Path
    url : StoreUrl
    """

    def __init__(self, folder: Path, url: StoreUrl) -> None:
        self.folder = folder
        self.url = url
        self._sent: dict[str, tuple[int, int]] = {}

    def step(self) -> int:
        """Upload new segments, oldest first, then remove those that the folder has no longer; return how many are new.

        Raises
        ------
        NotFoundError
            There is no such folder.
        InvalidError
            A segment is damaged; those before it have been uploaded.
        UnavailableError, UnauthenticatedError, DeniedError
        """
        store = open_store(self.url)
        try:
            here = {path.name: path for path in self.folder.iterdir() if _SEGMENT.fullmatch(path.name)}
        except OSError as error:
            raise NotFoundError(f"{self.folder}: {error.strerror}, expected the folder of a timeline") from error
        there = _segments(store.entries(self.url), self.url)
        new = 0
        for name, path in sorted(here.items()):
            try:
                found = path.stat()
            except FileNotFoundError:
                # Compacted since the folder was listed; the next step finds the compacted one.
                return new
            known = (found.st_ino, found.st_mtime_ns)
            if name in there and (self._sent.get(name) == known or self._is_same(path, there[name])):
                self._sent[name] = known
                continue
            check_segment(path, str(path))
            store.put(self.url / name, path)
            self._sent[name] = known
            new += 1
        for name in there.keys() - here.keys():
            store.delete(self.url / name)
        return new

    def _is_same(self, path: Path, entry: Entry) -> bool:
        if path.stat().st_size != entry.bytes:
            return False
        url = self.url / path.name
        return bytes(open_store(url).read(url, entry.bytes - _HASH_BYTES, _HASH_BYTES)) == segment_hash(path)


def timeline_folder(root: Path, url: StoreUrl) -> Path:
    """Return the folder that copies a timeline, below the folder of all copies; make it if there is none."""
    folder = private_folder(root / hashlib.sha256(str(url).encode()).hexdigest()[:32], "timeline")
    if not (folder / _URL).exists():
        replace(folder / _URL, str(url).encode())
    return folder


def is_copy(folder: Path) -> bool:
    """Return whether a folder copies a timeline of a store, by its name."""
    return folder.parent.name == FOLDER and _COPY.fullmatch(folder.name) is not None


def copied_timeline(root: Path, folder: Path) -> TimelineCopy | None:
    """Return what copies a timeline into a folder, or None if the folder is not below the folder of all copies."""
    if folder.parent != root:
        return None
    try:
        return TimelineCopy(folder, parse_url(read_regular(folder / _URL, _MOST_URL_BYTES).decode(), "timeline"))
    except (InvalidError, NotFoundError, ValueError):
        return None


def check_segment(path: Path, named: str) -> None:
    """Raise `InvalidError` if a segment does not end with the SHA-256 of all bytes before."""
    left = path.stat().st_size - _HASH_BYTES
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while left > 0 and (chunk := file.read(min(left, 4 * 1024 * 1024))):
            digest.update(chunk)
            left -= len(chunk)
        if left != 0 or file.read() != digest.digest():
            raise InvalidError(f"{named}: damaged, expected a segment of a timeline; publish it again")


def segment_hash(path: Path) -> bytes:
    """Return the SHA-256 with which a segment ends."""
    with path.open("rb") as file:
        file.seek(-_HASH_BYTES, os.SEEK_END)
        return file.read()


def _segments(entries: list[Entry], url: StoreUrl) -> dict[str, Entry]:
    prefix = f"{url.key}/" if url.key else ""
    named = {entry.key.removeprefix(prefix): entry for entry in entries}
    return {name: entry for name, entry in named.items() if _SEGMENT.fullmatch(name) and entry.bytes > _HASH_BYTES}
