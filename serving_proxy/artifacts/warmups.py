# SPDX-License-Identifier: Apache-2.0
"""Warm-up files that the agents of machines fetch from the proxy: files that are named by their content."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from serving_proxy.errors import NotFoundError
from serving_proxy.system.files import read_regular, replace

GIVEN = "given"
"""Folder of the copies of files that operators have given, below that of files from request logs."""
WARMUPS_FEATURE = "agent:warmup_files"
"""Feature of agents that fetch warm-up files."""
MOST_BYTES = 256 * 1024 * 1024
TOTAL = "X-Total-Bytes"
"""Header with the size of a file of which a part is sent."""
_NAME = re.compile(r"([0-9a-f]{32})(\.[A-Za-z0-9]{1,16})?")


def warmup_name(sha256: str, suffix: str = ".tfrecord") -> str:
    """Return the name of a warm-up file, from the SHA-256 of its content."""
    name = f"{sha256[:32]}{suffix}"
    return name if _NAME.fullmatch(name) else sha256[:32]


def hash_of_name(name: str) -> str | None:
    """Return the beginning of the SHA-256 of a warm-up file; None: the name is not made from its content."""
    found = _NAME.fullmatch(name)
    return None if found is None else found[1]


def keep_copy(file: Path, folder: Path) -> Path:
    """Copy a warm-up file under the name of its content, unless it is there; what is there counts as new.

    Raises
    ------
    NotFoundError, InvalidError
        It cannot be read, or is larger than 256 MiB.
    ExhaustedError
        The disk is full.
    """
    if file.parent in {folder, folder / GIVEN} and hash_of_name(file.name) is not None:
        _touch(file)
        return file
    data = read_regular(file, MOST_BYTES, "a warm-up file")
    copy = folder / GIVEN / warmup_name(hashlib.sha256(data).hexdigest(), file.suffix)
    if not _touch(copy):
        copy.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        replace(copy, data, mode=0o640)
    return copy


def _touch(file: Path) -> bool:
    """Return whether a file is there, and keep the cleaner from removing it until a version names it."""
    try:
        os.utime(file)
    except OSError:
        # It may also belong to another user, if proxies share the folder.
        return file.exists()
    return True


def first_there(places: Sequence[Path], folder: Path) -> Path:
    """Return which of several places of one warm-up file has it; the first one if none has.

    Parameters
    ----------
    places : sequence of Path
        As versions name them, maybe in the state directory of another proxy.
    folder : Path
        Where this proxy keeps such files.
    """
    name = places[0].name
    there = (place for place in (*places, folder / name, folder / GIVEN / name) if place.is_file())
    return next(there, places[0])


def read_part(file: Path, start: int, length: int) -> tuple[bytes, int]:
    """Return bytes of a file from a position on, and the size of the file [byte].

    Raises
    ------
    NotFoundError
        It cannot be read.
    """
    try:
        with file.open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            opened.seek(min(start, size))
            return opened.read(length), size
    except OSError as error:
        raise NotFoundError(f"warm-up file {file.name}: {error.strerror}, expected a file of this proxy") from error
