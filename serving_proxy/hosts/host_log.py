# SPDX-License-Identifier: Apache-2.0
"""What a host prints: a file beside its state, bounded, which goes on while the proxy is down."""

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
    """Open a host's log to append to."""
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / "host.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileExistsError(errno.EEXIST, "no regular file", str(folder / "host.log"))
    # For whoever inherits it: it is a file as any other.
    os.set_blocking(file, True)
    return file


def bound_log(folder: Path, most: int = MOST_BYTES) -> bool:
    """Move a log that has grown too long to `host.log.1`; the host goes on writing to the file that it has open."""
    path = folder / "host.log"
    with contextlib.suppress(OSError):
        if path.stat().st_size > most:
            shutil.copyfile(path, folder / "host.log.1")
            os.truncate(path, 0)
            return True
    return False


def last_line(folder: Path) -> str:
    """Return the last line that a host has printed; "" if there is none."""
    try:
        with (folder / "host.log").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip()[:500] for line in reversed(lines) if line.strip()), "")
