# SPDX-License-Identifier: Apache-2.0
"""Files that are replaced whole: a reader sees the old one or the new one, also after a loss of power."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from serving_proxy.errors import ExhaustedError


def replace(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file beside its place, sync it and rename it.

    Raises
    ------
    ExhaustedError
        It cannot be written; what was there before is as it was.
    """
    beside = path.with_name(f".{path.name}.new")
    try:
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
            os.fsync(file)
        finally:
            os.close(file)
        os.rename(beside, path)
        _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise ExhaustedError(f"{path}: {error.strerror}, expected to write {len(data)} bytes") from error


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
