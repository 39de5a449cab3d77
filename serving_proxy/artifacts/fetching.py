# SPDX-License-Identifier: Apache-2.0
"""Fetch a file of a store: several parts at a time, past faults that pass, and only what is not there yet."""

from __future__ import annotations

import hashlib
import queue
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from serving_proxy.artifacts.manifest import PART_BYTES, RemoteFile
from serving_proxy.artifacts.partial_file import PartialFile
from serving_proxy.artifacts.store import Data, Store
from serving_proxy.errors import CancelledError, InvalidError, NotFoundError, UnavailableError

#: Parts that are fetched at the same time.
IN_FLIGHT = 8
#: How long a store may be silent until the fetching ends with an error; a later one continues where it stopped.
PATIENCE_S = 30.0
# Parts that are kept in memory until they are hashed.
_MOST_KEPT = 16
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_MOST_WRONG = 3
_LOOK_S = 0.1

Cancelled = Callable[[], bool]
Progress = Callable[[int], None]


def fetch_file(
    store: Store,
    file: RemoteFile,
    partial: Path,
    target: Path,
    cancelled: Cancelled,
    progress: Progress,
    patience_s: float = PATIENCE_S,
) -> str:
    """Fetch a file and return its SHA-256 in hexadecimal digits.

    Parameters
    ----------
    store : Store
    file : RemoteFile
    partial : Path
        Where its parts are collected. Only one process at a time may use it.
    target : Path
        Where the file appears once all of it has been checked and synced.
    cancelled : callable
        True ends the fetching; what is there stays.
    progress : callable
        Called with numbers of bytes that have become available.
    patience_s : float [s]
        How long nothing may arrive until `UnavailableError` is raised.

    Raises
    ------
    CancelledError, ExhaustedError, UnavailableError, UnauthenticatedError, DeniedError
    NotFoundError, InvalidError
        The object is missing, shorter than its manifest says, or its bytes are not those of the manifest.
    """
    parts = PartialFile(partial, file.bytes, file.parts)
    try:
        fetch = _Fetch(store, file, parts, cancelled, progress, patience_s)
        sha256 = fetch.run()
        if file.sha256 is not None and sha256 != file.sha256:
            parts.discard()
            raise InvalidError(f"{file.url}: SHA-256 {sha256}, expected {file.sha256}; upload the artifact again")
        parts.finish(target)
        return sha256
    finally:
        parts.close()


class _Fetch:
    """The threads that fetch the parts of one file, and the hash of what they have fetched."""

    def __init__(
        self,
        store: Store,
        file: RemoteFile,
        parts: PartialFile,
        cancelled: Cancelled,
        progress: Progress,
        patience_s: float,
    ) -> None:
        self._store = store
        self._file = file
        self._parts = parts
        self._cancelled = cancelled
        self._progress = progress
        self._patience_s = patience_s
        self._left: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._arrived = threading.Condition()
        self._arrived_parts: dict[int, Data] = {}
        self._hashed = 0
        self._error: BaseException | None = None
        self._ended = False
        self._last_byte = time.monotonic()

    def run(self) -> str:
        """Fetch what is missing; hash the parts in their order while later ones arrive."""
        missing = [part for part in range(self._parts.count) if part not in self._parts.done]
        self._progress(sum(self._parts.length(part) for part in self._parts.done))
        for part in missing:
            self._left.put(part)
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(min(IN_FLIGHT, len(missing)))]
        for thread in threads:
            thread.start()
        try:
            return self._hash()
        finally:
            self._ended = True
            for thread in threads:
                thread.join()

    def _hash(self) -> str:
        digest = hashlib.sha256()
        for part in range(self._parts.count):
            with self._arrived:
                while part not in self._parts.done and self._error is None:
                    self._arrived.wait(_LOOK_S)
                    if self._cancelled():
                        raise CancelledError(f"{self._file.url}: cancelled")
            if self._error is not None:
                raise self._error
            # Hashed from memory if the parts before have not made it wait for long.
            data = self._arrived_parts.pop(part, None)
            self._hashed = part + 1
            for piece in self._parts.pieces(part) if data is None else (data,):
                digest.update(piece)
        return digest.hexdigest()

    def _work(self) -> None:
        """Fetch parts until none is left; the first error ends all threads."""
        try:
            while not self._ended and self._error is None:
                try:
                    part = self._left.get_nowait()
                except queue.Empty:
                    return
                self._fetch(part)
        except BaseException as error:
            with self._arrived:
                self._error = self._error or error
                self._arrived.notify_all()

    def _fetch(self, part: int) -> None:
        length, wrong, pause = self._parts.length(part), 0, _FIRST_PAUSE_S
        while not self._ended and self._error is None:
            try:
                data = self._store.read(self._file.url, part * PART_BYTES, length, self._file.tag)
            except UnavailableError as error:
                if time.monotonic() - self._last_byte >= self._patience_s:
                    raise UnavailableError(
                        f"{error}; nothing for {self._patience_s:g} s, the next attempt continues"
                    ) from error
            except NotFoundError as error:
                raise NotFoundError(
                    f"{self._file.url}: missing, expected {self._file.bytes} bytes of '{self._file.name}': "
                    "half an artifact; upload it again"
                ) from error
            else:
                if self._parts.is_right(part, data):
                    self._take(part, data)
                    return
                wrong += 1
                if wrong == _MOST_WRONG:
                    raise self._damaged(part, len(data))
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _take(self, part: int, data: Data) -> None:
        if part < self._hashed + _MOST_KEPT:
            self._arrived_parts[part] = data
        self._parts.write(part, data)
        self._last_byte = time.monotonic()
        self._progress(len(data))
        with self._arrived:
            self._arrived.notify_all()

    def _damaged(self, part: int, length: int) -> InvalidError:
        first = part * PART_BYTES
        if length != self._parts.length(part):
            found = f"{first + length} bytes, expected {self._file.bytes} of '{self._file.name}': half an artifact"
        else:
            found = f"bytes {first} to {first + length - 1} are not those of '{self._file.name}', expected its checksum"
        return InvalidError(f"{self._file.url}: {found}; upload it again")

    def _sleep(self, seconds: float) -> None:
        """Sleep for about this time, so that the threads do not all ask again at the same moment."""
        end = time.monotonic() + seconds * random.uniform(0.5, 1.5)
        while not self._ended and self._error is None and time.monotonic() < end:
            time.sleep(min(_LOOK_S, seconds))
