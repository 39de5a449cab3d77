# SPDX-License-Identifier: Apache-2.0
"""Write a folder next to its target and rename it when it is complete, so that no process ever sees half of it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graph_tools.errors import ConversionError, GraphToolsError, UsageError

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def check_place(place: Path, source: Path) -> None:
    """Check, before any work is done, that a folder may be written at `place`.

    Raises
    ------
    UsageError
        Something exists there, it lies inside the source, or its parent folder is not writable.
    """
    if place.exists() or place.is_symlink():
        raise UsageError(f"{place}: already exists, expected a path that does not")
    if source.resolve() in place.resolve().parents:
        raise UsageError(f"{place}: is inside the source, expected a folder outside it")
    check_parent(place, str(place))


def check_parent(place: Path, named: str) -> None:
    """Raise `UsageError` unless a file or folder, with its parent folders, can be created at `place`."""
    parent = place.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise UsageError(f"{named}: {parent} is a file, expected a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"{named}: no permission to write to {parent}, expected a folder that may be written to")


@contextmanager
def staged(place: Path) -> Iterator[Path]:
    """Yield a path to write a folder to, and rename that folder to `place` when the block ends.

    The path lies inside `.NAME.xxxxxxxx`, a hidden folder next to `place`, which is removed when the block ends, with
    or without an error. Folders that killed processes left behind, which are those that no process holds a lock on, are
    removed first.

    Raises
    ------
    UsageError
        `place` cannot be created.
    ConversionError
        Writing failed; errors that name the path to write to name `place` instead.
    """
    made = _make_parents(place)
    try:
        _remove_abandoned(place)
        try:
            hidden, lock = _make_hidden(place)
        except OSError as error:
            raise UsageError(f"{place}: {error.strerror}, expected permission to create a folder beside it") from error
        try:
            with _name_target_in_errors(hidden / place.name, place):
                yield hidden / place.name
                (hidden / place.name).rename(place)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
            os.close(lock)
    except BaseException:
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


@contextmanager
def _name_target_in_errors(path: Path, place: Path) -> Iterator[None]:
    """Make errors name the target that the user knows, and turn errors of the system into `ConversionError`."""
    try:
        yield
    except GraphToolsError as error:
        error.args = (str(error).replace(str(path), str(place)), *error.args[1:])
        raise
    except OSError as error:
        names = [str(name) for name in (error.filename, error.filename2) if str(name).startswith(str(path))]
        # An error in the middle of a file carries no file name.
        if not names and error.errno not in _NO_ROOM:
            raise
        name = names[0].replace(str(path), str(place)) if names else str(place)
        raise ConversionError(f"{name}: {error.strerror}, expected room and permission to write it") from error


def _make_parents(place: Path) -> list[Path]:
    """Create the parent folders of `place` and return those that did not exist, the innermost first."""
    missing = []
    parent = place.absolute().parent
    while not parent.exists():
        missing.append(parent)
        parent = parent.parent
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{place}: {error.strerror} ({error.filename}), expected a folder to write it to") from error
    return missing


def _make_hidden(place: Path) -> tuple[Path, int]:
    """Create the hidden folder and lock it; the lock ends with the process, however that ends."""
    while True:
        hidden = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
        hidden.mkdir()
        lock = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY)
        with contextlib.suppress(OSError):  # the file system may have no locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        # Another process may have removed it as abandoned before it was locked.
        if hidden.exists():
            return hidden, lock
        os.close(lock)


def _remove_abandoned(place: Path) -> None:
    """Remove hidden folders for this target whose process has ended."""
    name = re.compile(rf"\.{re.escape(place.name)}\.[0-9a-f]{{8}}")
    with contextlib.suppress(OSError):
        for folder in [path for path in place.absolute().parent.iterdir() if name.fullmatch(path.name)]:
            if folder.is_symlink() or any(path.name != place.name for path in folder.iterdir()):
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            except OSError:
                continue
            finally:
                os.close(lock)
