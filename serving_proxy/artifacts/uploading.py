# SPDX-License-Identifier: Apache-2.0
"""Upload a finished model into a store: first its files, by their hash, then the manifest, if there is none yet."""

from __future__ import annotations

import hashlib
import logging
import posixpath
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import google_crc32c

from serving_proxy.artifacts.fetching import PATIENCE_S, Cancelled
from serving_proxy.artifacts.manifest import NAME, PART_BYTES, RemoteArtifact, RemoteFile, read_artifact, render
from serving_proxy.artifacts.marks import Marks
from serving_proxy.artifacts.store import Store
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.urls import StoreUrl
from serving_proxy.errors import CancelledError, ExistsError, InvalidError, UnavailableError
from serving_proxy.gates.fingerprint import files_of

log = logging.getLogger("serving_proxy.artifacts")

#: Folder of the bytes of files in a model store.
BLOBS = "blobs"
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0

_T = TypeVar("_T")


@dataclass(frozen=True)
class Upload:
    """What is uploaded, and where.

    Attributes
    ----------
    folder : Path
        A model whose files stay as they are.
    fingerprint : str
        SHA-256 over all its files, as hosts compute it.
    root : StoreUrl
        The store; files go into its folder `blobs`.
    url : StoreUrl
        Where the artifact is to be, below the store.
    """

    folder: Path
    fingerprint: str
    root: StoreUrl
    url: StoreUrl


def upload(
    asked: Upload,
    cancelled: Cancelled = lambda: False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    patience_s: float = PATIENCE_S,
) -> RemoteArtifact:
    """Upload a model; what the store has already is not sent again.

    Parameters
    ----------
    asked : Upload
    cancelled, patience_s
        As for `fetch_file`.
    progress : callable
        Called with the number of bytes that are in the store and the number of all bytes.

    Raises
    ------
    ExistsError
        There is another artifact at this URL, which stays.
    InvalidError
        A file cannot be read.
    UnavailableError, UnauthenticatedError, DeniedError, ExhaustedError, CancelledError
    """
    store = open_store(asked.url)
    files = [_described(path, asked, cancelled) for path in files_of(asked.folder)]
    marks = Marks(store, asked.root)
    # Before the blobs are listed, so that none of them is removed from now on.
    for sha256 in sorted(_retried(marks.names, cancelled, patience_s) & {str(file.sha256) for file in files}):
        _retried(partial(marks.remove, sha256), cancelled, patience_s)
    sent = {
        entry.key: entry.bytes for entry in _retried(lambda: store.entries(asked.root / BLOBS), cancelled, patience_s)
    }
    total, done = sum(file.bytes for file in files), 0
    for file in files:
        if sent.get(file.url.key) != file.bytes:
            _send(store, file, asked, cancelled, patience_s)
            sent[file.url.key] = file.bytes
        done += file.bytes
        progress(done, total)
    blobs = posixpath.relpath(f"/{(asked.root / BLOBS).key}", f"/{asked.url.key}")
    manifest = render(files, asked.fingerprint, blobs)
    _retried(lambda: store.create(asked.url / NAME, manifest), cancelled, patience_s)
    # Also if the reply to a conditional write that succeeded was lost, what is there is what counts.
    there = _retried(lambda: read_artifact(store, asked.url), cancelled, patience_s)
    if there.fingerprint != asked.fingerprint:
        raise ExistsError(f"{asked.url}: another artifact is there, expected none, or these files; it stays")
    return there


def _described(path: Path, asked: Upload, cancelled: Cancelled) -> RemoteFile:
    """Read a file and return its description."""
    digest, parts, size = hashlib.sha256(), [], 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(PART_BYTES):
                if cancelled():
                    raise CancelledError(f"{asked.url}: cancelled")
                digest.update(chunk)
                parts.append(google_crc32c.value(chunk))
                size += len(chunk)
    except OSError as error:
        raise InvalidError(f"{path}: {error.strerror}, expected a readable file") from error
    sha256 = digest.hexdigest()
    return RemoteFile(str(path.relative_to(asked.folder)), asked.root / BLOBS / sha256, size, sha256, tuple(parts))


def _send(store: Store, file: RemoteFile, asked: Upload, cancelled: Cancelled, patience_s: float) -> None:
    log.info("uploads %s", file.url, extra={"bytes": file.bytes})
    path = asked.folder / file.name
    # Small objects are sent as bytes, in one request.
    data: bytes | Path = path.read_bytes() if file.bytes < PART_BYTES else path.resolve()
    _retried(lambda: store.put(file.url, data), cancelled, patience_s)


def _retried(act: Callable[[], _T], cancelled: Cancelled, patience_s: float) -> _T:
    """Repeat an action while the store does not answer, for a limited time."""
    pause, end = _FIRST_PAUSE_S, time.monotonic() + patience_s
    while True:
        try:
            return act()
        except UnavailableError:
            if time.monotonic() >= end:
                raise
        if cancelled():
            raise CancelledError("upload: cancelled")
        time.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(2 * pause, _LONGEST_PAUSE_S)
