# SPDX-License-Identifier: Apache-2.0
"""Identity of a model's files: a stamp and a seal, which are cheap, and a hash, which is reliable."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from serving_proxy.errors import CancelledError, InvalidError
from serving_proxy.system.files import open_regular

_CHUNK = 4 * 1024 * 1024
# Hard links that several models share: another link changes their ctime.
_TABLE = ".emb"


@dataclass(frozen=True)
class Fingerprint:
    """Hash and size of all files of a model, and their seal when they were read."""

    sha256: str
    bytes: int
    seal: str


def files_of(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, sorted; follow links to folders, but not to one that contains the link."""
    left = [(folder, frozenset[tuple[int, int]]())]
    while left:
        place, above = left.pop()
        try:
            found = place.stat()
            with os.scandir(place) as entries:
                sorted_entries = sorted(entries, key=lambda entry: os.fsencode(entry.name))
        except OSError:
            continue
        known = (found.st_dev, found.st_ino)
        if known in above:
            continue
        folders = []
        for entry in sorted_entries:
            if _is_folder(entry):
                folders.append((place / entry.name, above | {known}))
            else:
                yield place / entry.name
        left += reversed(folders)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def stamp_of(folder: Path) -> str:
    """Return a short text that changes if a file is added, removed or written; "" if the folder cannot be read."""
    digest = hashlib.sha256()
    try:
        for path in files_of(folder):
            found = path.stat()
            digest.update(
                f"{path.relative_to(folder)}\0{found.st_size}\0{found.st_mtime_ns}\n".encode("utf-8", "replace")
            )
    except OSError:
        return ""
    return digest.hexdigest()[:16]


def seal_of(folder: Path) -> str:
    """Return a text that changes if anything is written below a folder, even if sizes and times are restored.

    Hosts compute the same (`libprocessor/src/host/versions/model_files.h`), and read all files again if it has changed.

    Raises
    ------
    InvalidError
    """
    digest = hashlib.sha256()
    try:
        for path in files_of(folder):
            found = path.stat()
            name = os.fsencode(path.relative_to(folder))
            changed = 0 if path.name.endswith(_TABLE) else found.st_ctime_ns
            digest.update(name + b"\0%d %d %d\n" % (found.st_size, found.st_mtime_ns, changed))
    except OSError as error:
        raise InvalidError(f"{error.filename or folder}: {error.strerror}, expected a readable file") from error
    return digest.hexdigest()


def fingerprint(folder: Path, cancelled: Callable[[], bool], progress: Callable[[int, int], None]) -> Fingerprint:
    """Read all files of a model.

    Parameters
    ----------
    folder : Path
    cancelled : callable
        Called every few megabytes; true cancels the reading.
    progress : callable
        Called with the number of bytes that have been read and the number of all bytes.

    Raises
    ------
    CancelledError, InvalidError
        `cancelled` returned true; or a file cannot be read, or was written to meanwhile.
    """
    seal = seal_of(folder)
    try:
        sizes = {path: path.stat().st_size for path in files_of(folder)}
        total, done = sum(sizes.values()), 0
        digest = hashlib.sha256()
        for path, size in sizes.items():
            name = os.fsencode(path.relative_to(folder))
            digest.update(b"%d %d " % (len(name), size) + name)
            with os.fdopen(open_regular(path), "rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
                    done += len(chunk)
                    progress(done, total)
                    if cancelled():
                        raise CancelledError(f"{folder}: cancelled")
    except OSError as error:
        raise InvalidError(f"{error.filename or folder}: {error.strerror}, expected a readable file") from error
    if seal_of(folder) != seal:
        raise InvalidError(f"model {folder}: its files changed while they were read, expected files that stay the same")
    return Fingerprint(digest.hexdigest(), total, seal)
