# SPDX-License-Identifier: Apache-2.0
"""Read the state of this process from /proc."""

from __future__ import annotations

import os
import re
from pathlib import Path


def num_threads() -> int:
    """Return the number of threads."""
    return len(os.listdir("/proc/self/task"))


def num_fds() -> int:
    """Return the number of open file descriptors, without the one that this function opens."""
    return len(os.listdir("/proc/self/fd")) - 1


def resident_mb() -> float:
    """Return the resident memory [MB]."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak_resident_bytes() -> int:
    """Return the largest resident memory of this program so far [bytes].

    `getrusage` also counts the process that started this one.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (kilobytes,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kilobytes) * 1024


def catches(pid: int, number: int) -> bool:
    """Return whether a process handles a signal by a function of its own."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    (caught,) = re.findall(r"^SigCgt:\s+([0-9a-f]+)$", status, re.MULTILINE)
    return bool(int(caught, 16) >> (number - 1) & 1)


def threads_named(prefix: str) -> dict[int, set[int]]:
    """Return the threads whose names begin with a prefix, and the CPUs that each may use."""
    found = {}
    for entry in Path("/proc/self/task").iterdir():
        try:
            if (entry / "comm").read_text(encoding="utf-8").startswith(prefix):
                found[int(entry.name)] = os.sched_getaffinity(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
    return found
