# SPDX-License-Identifier: Apache-2.0
"""Unix domain sockets: own a path, remove the socket of a process that has ended, and limit who may connect."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

# The kernel's limit, without the final NUL.
MOST_BYTES = 107
_ANSWER_S = 1.0


class UnixSocket:
    """A path that belongs to this process, and its lock file, which remains.

    The lock decides whether a socket is stale: a host that still loads its models does not listen yet, so that it
    refuses connections as a socket without a process does.

    Parameters
    ----------
    path : Path
    mode : int
        Permissions of the socket; those who may write to it may connect.

    Raises
    ------
    ValueError
        If another process has the path, or it is not a socket.
    OSError
        If the folder does not exist or cannot be written.
    """

    def __init__(self, path: Path, mode: int) -> None:
        self.path = path
        self._mode = mode
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._lock = os.open(f"{self.path}.lock", flags, 0o600)
        try:
            self._claim()
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def address(self) -> str:
        """Return the address for clients."""
        return f"unix:{self.path}"

    def _claim(self) -> None:
        in_use = ValueError(f"{self.address}: in use by another process, expected a socket of its own")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise in_use from None
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(self.path.lstat().st_mode):
                raise ValueError(f"{self.address}: found a file of another kind, expected a socket or nothing")
            if _is_served(self.path):
                raise in_use
            self.path.unlink()

    def bind(self) -> socket.socket:
        """Return a socket that is bound to the path and does not listen yet."""
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with self.binding():
                bound.bind(str(self.path))
        except BaseException:
            bound.close()
            raise
        bound.setblocking(False)
        return bound

    @contextlib.contextmanager
    def binding(self) -> Iterator[None]:
        """Give the socket that the block binds its permissions; until then only this user may connect."""
        before = os.umask(0o077)
        try:
            yield
        finally:
            os.umask(before)
        self.path.chmod(self._mode)

    def release(self) -> None:
        """Remove the socket, and let other processes have the path."""
        self.path.unlink(missing_ok=True)
        os.close(self._lock)


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_ANSWER_S)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            return False
        except TimeoutError:
            pass
    return True
