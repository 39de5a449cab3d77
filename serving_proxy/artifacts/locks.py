# SPDX-License-Identifier: Apache-2.0
"""Locks between processes, by files that are deleted once nobody needs them."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from serving_proxy.errors import CancelledError

_LOOK_S = 0.05


@contextmanager
def locked(path: Path, cancelled: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Hold a lock while the block runs; it ends with the process, however that ends.

    Raises
    ------
    CancelledError
        `cancelled` returned true while another process had the lock.
    """
    file = _acquire(path, cancelled)
    try:
        yield
    finally:
        # Deleted while it is held: those that wait for it find that it is gone, and make another one.
        with suppress(OSError):
            path.unlink()
        os.close(file)


def is_locked(path: Path) -> bool:
    """Return whether a process holds a lock."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _acquire(path: Path, cancelled: Callable[[], bool]) -> int:
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if cancelled():
                        raise CancelledError(f"{path}: cancelled while another process had the lock") from None
                    time.sleep(_LOOK_S)
            if _is_same(file, path):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _is_same(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False
