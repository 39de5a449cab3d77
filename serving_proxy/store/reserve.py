# SPDX-License-Identifier: Apache-2.0
"""Disk space for an operator's changes on a full disk: a file that is deleted when the space is needed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from serving_proxy.errors import ExhaustedError

BYTES = 1024 * 1024
# The reserve is not taken if less than this would remain free.
_LEFT_FREE = 16 * BYTES
_PROBE_BYTES = 4096


class Reserve:
    """The reserved space of a state directory.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "reserve"
        self._probe = folder / ".probe"

    def release(self) -> None:
        """Free the reserved space."""
        with contextlib.suppress(OSError):
            self._path.unlink()

    def renew(self) -> None:
        """Reserve the space again, if there is plenty."""
        with contextlib.suppress(OSError):
            if self._path.exists() and self._path.stat().st_size == BYTES:
                return
            found = os.statvfs(self._path.parent)
            if found.f_bavail * found.f_frsize < _LEFT_FREE + BYTES:
                return
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
            try:
                os.posix_fallocate(file, 0, BYTES)
            finally:
                os.close(file)

    def probe(self) -> None:
        """Write a few bytes, because otherwise nothing may be written for hours.

        Raises
        ------
        ExhaustedError
            They cannot be written.
        """
        try:
            file = os.open(self._probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
            try:
                # Not zeros, so that the file is not sparse and the file system must allocate space.
                if os.write(file, b"\1" * _PROBE_BYTES) < _PROBE_BYTES:
                    raise OSError(28, os.strerror(28))
            finally:
                os.close(file)
        except OSError as error:
            raise ExhaustedError(f"{self._probe.parent}: {error.strerror}, expected room to write") from error
        finally:
            with contextlib.suppress(OSError):
                self._probe.unlink()
