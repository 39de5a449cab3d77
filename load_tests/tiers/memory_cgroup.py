# SPDX-License-Identifier: Apache-2.0
"""A control group whose memory, pages of files included, can be limited: version 1 or 2, which needs root."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["join", "limit_memory", "memory_cgroup"]

_LIMITS = ("memory.max", "memory.limit_in_bytes")


def _mounts() -> list[Path]:
    """Return where groups with the memory controller may be mounted."""
    found = []
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(",")):
            found.append(Path(folder))
    return found


def _limit_of(group: Path) -> Path:
    return next(group / name for name in _LIMITS if (group / name).exists())


@contextlib.contextmanager
def memory_cgroup() -> Iterator[Path]:
    """Make a group, and remove it when its processes have ended.

    Raises
    ------
    OSError
        If none can be made; the message says why.
    """
    reasons = ["no control groups are mounted"]
    for mount in _mounts():
        group = mount / f"bench_tiers_{os.getpid()}"
        try:
            group.mkdir()
        except OSError as error:
            reasons.append(str(error))
            continue
        try:
            if any((group / name).exists() for name in _LIMITS):
                yield group
                return
            reasons.append(f"{mount}: without the memory controller")
        finally:
            group.rmdir()
    raise OSError(f"no memory cgroup: {reasons[-1]}")


def join(group: Path) -> None:
    """Move this process into a group."""
    (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")


def limit_memory(group: Path, size: int) -> None:
    """Limit the memory of a group [bytes]; pages of files above it are given back."""
    _limit_of(group).write_text(str(size), encoding="ascii")
