# SPDX-License-Identifier: Apache-2.0
"""The output of a host: a bounded file next to its state, which the host can write to while the proxy is down."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from pathlib import Path

MOST_BYTES = 16 * 1024 * 1024
_TAIL_BYTES = 4096


def open_log(folder: Path) -> int:
    """Open a host's log for appending."""
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / "host.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileExistsError(errno.EEXIST, "no regular file", str(folder / "host.log"))
    # The host inherits it and expects an ordinary blocking file.
    os.set_blocking(file, True)
    return file


def bound_log(folder: Path, most: int = MOST_BYTES) -> bool:
    """Copy a log that has grown too long to `host.log.1` and empty it; the host keeps writing to its open file."""
    path = folder / "host.log"
    with contextlib.suppress(OSError):
        if path.stat().st_size > most:
            shutil.copyfile(path, folder / "host.log.1")
            os.truncate(path, 0)
            return True
    return False


def last_line(folder: Path) -> str:
    """Return the last line that a host has printed, or "" if there is none."""
    try:
        with (folder / "host.log").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip()[:500] for line in reversed(lines) if line.strip()), "")
