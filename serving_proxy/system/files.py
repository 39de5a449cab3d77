# SPDX-License-Identifier: Apache-2.0
"""Files that are replaced as a whole, so that readers see the old or the new one, and read only if they are regular."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from serving_proxy.errors import ExhaustedError, InvalidError, NotFoundError

_LEAST_SPARE = 65536
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def replace(path: Path, data: bytes, mode: int = 0o600, spare: bool = False) -> None:
    """Write a file next to its place, sync it and rename it.

    Parameters
    ----------
    path : Path
    data : bytes
    mode : int
    spare : bool
        Keep room for the next one, so that it can be written on a full disk too.

    Raises
    ------
    ExhaustedError
        It cannot be written; the earlier file is unchanged.
    """
    beside, kept = path.with_name(f".{path.name}.new"), path.with_name(f".{path.name}.spare")
    try:
        try:
            _write_anew(beside, data, mode)
        except OSError:
            if not spare or not kept.exists():
                raise
            _write_within(kept, data)
            beside = kept
        os.rename(beside, path)
        sync_folder(path.parent)
    except OSError as error:
        if beside != kept:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
        raise ExhaustedError(f"{path}: {error.strerror}, expected to write {len(data)} bytes") from error
    if spare:
        _keep_room(kept, 2 * len(data), mode)


def _write_anew(path: Path, data: bytes, mode: int) -> None:
    # A killed proxy may have left anything there, and with another mode.
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        _write_all(file, data)
        os.fsync(file)
    finally:
        os.close(file)


def _write_within(path: Path, data: bytes) -> None:
    """Write into a file that has its space already."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        _write_all(file, data)
        os.ftruncate(file, len(data))
        os.fsync(file)
    finally:
        os.close(file)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _keep_room(path: Path, size: int, mode: int) -> None:
    """Keep a file of at least this size; if there is no room, keep none."""
    size = max(size, _LEAST_SPARE)
    with contextlib.suppress(OSError):
        if path.exists() and path.stat().st_size >= size:
            return
        path.unlink(missing_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            os.posix_fallocate(file, 0, size)
        except OSError:
            path.unlink()
        finally:
            os.close(file)


def private_folder(path: Path, named: str = "--state-dir") -> Path:
    """Return a folder, links followed, that other users cannot access; make it if it does not exist.

    Raises
    ------
    InvalidError
        It cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = path.resolve(strict=True)
        mode = stat.S_IMODE(place.stat().st_mode)
        if mode & 0o077:
            # It was made before, or by another user, who may not permit the change, as with a container's volume.
            with contextlib.suppress(PermissionError):
                place.chmod(mode & 0o700)
    except (OSError, RuntimeError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise InvalidError(f"{named} {path}: {said}, expected a folder") from error
    return place


def open_private(path: Path) -> int:
    """Open a file of the state directory to read and write, for its user only; make it if it does not exist.

    Raises
    ------
    ExhaustedError, InvalidError
        It cannot be made, or is not a regular file.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        kind = ExhaustedError if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EROFS} else InvalidError
        raise kind(f"{path}: {error.strerror}, expected a file of this proxy") from error
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        os.close(file)
        said = _KINDS.get(stat.S_IFMT(found.st_mode), "no file")
        raise InvalidError(f"{path}: {said}, expected a file of this proxy")
    if found.st_mode & 0o077:
        with contextlib.suppress(PermissionError):
            os.fchmod(file, 0o600)
    return file


def open_regular(path: str | Path) -> int:
    """Open a regular file for reading, without waiting; return its descriptor.

    Opening a named pipe would wait until another program writes to it, and a device could be read without end.

    Raises
    ------
    OSError
        It does not exist, or cannot be read.
    InvalidError
        It is not a regular file.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    kind = stat.S_IFMT(os.fstat(file).st_mode)
    if kind != stat.S_IFREG:
        os.close(file)
        raise InvalidError(f"{path}: {_KINDS.get(kind, 'no file')}, expected a regular file")
    return file


def read_regular(path: str | Path, most_bytes: int, expected: str = "a readable file") -> bytes:
    """Read a regular file of limited size.

    Parameters
    ----------
    path : path
    most_bytes : int [byte]
    expected : str
        Description of the expected file, for messages.

    Raises
    ------
    NotFoundError, InvalidError
        It does not exist, cannot be read, is not a regular file, or is too large.
    """
    try:
        file = open_regular(path)
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: not there, expected {expected}") from error
    except (OSError, ValueError) as error:
        raise InvalidError(f"{path}: {getattr(error, 'strerror', None) or error}, expected {expected}") from error
    try:
        with os.fdopen(file, "rb", closefd=True) as opened:
            found = os.fstat(opened.fileno()).st_size
            if found > most_bytes:
                raise InvalidError(f"{path}: {found} bytes, expected {expected} of at most {most_bytes}")
            data = opened.read(most_bytes + 1)
    except OSError as error:
        raise InvalidError(f"{path}: {error.strerror}, expected {expected}") from error
    if len(data) > most_bytes:
        raise InvalidError(f"{path}: more than {most_bytes} bytes, expected {expected} of at most that")
    return data


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that its renamed files survive a loss of power."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
