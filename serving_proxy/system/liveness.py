# SPDX-License-Identifier: Apache-2.0
"""Signs of life of hosts: a file that a host touches while it responds, and the kernel's state of its process.

Touching needs no space on the disk, so that a full disk does not look like a host that hangs. Time is counted here, in
steps of a second at most, so that no host is blamed if the proxy was stopped or the machine slept.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

FILE = "heartbeat"
PERIOD_S = 0.5
_MOST_STEP_S = 1.0


class Heartbeat:
    """The file that a host touches.

    Parameters
    ----------
    state_dir : Path
    host_id : str
    """

    def __init__(self, state_dir: Path, host_id: str) -> None:
        self._path = state_dir / "hosts" / host_id / FILE

    def beat(self) -> None:
        """Record that this process responds; ignore errors of the disk."""
        with contextlib.suppress(OSError):
            try:
                os.utime(self._path)
            except FileNotFoundError:
                os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600))


@dataclass
class _Watched:
    pid: int = 0
    beat: int = 0
    has_beaten: bool = False
    silent_s: float = 0.0
    stopped_s: float = 0.0


class HostLiveness:
    """Knows how long each host has been silent."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Watched] = {}
        self._last = time.monotonic()
        self._step = 0.0

    def begin(self) -> None:
        """Begin a look at all hosts."""
        now = time.monotonic()
        self._step, self._last = min(now - self._last, _MOST_STEP_S), now

    def look(self, name: str, folder: Path, pid: int) -> None:
        """Look at one host whose process runs."""
        try:
            beat = os.stat(folder / FILE).st_mtime_ns
        except OSError:
            beat = 0
        host = self._hosts.get(name)
        if host is None or host.pid != pid:
            # A file that an earlier process has left behind is not a sign of this one.
            self._hosts[name] = _Watched(pid, beat)
            return
        host.stopped_s = host.stopped_s + self._step if is_stopped(pid) else 0.0
        if beat != host.beat:
            host.beat, host.has_beaten, host.silent_s = beat, True, 0.0
        elif host.has_beaten:
            host.silent_s += self._step

    def silence(self, name: str, pid: int) -> tuple[float, float]:
        """Return how long a process has given no sign of life [s], and how long it has been stopped [s].

        A process that has never given a sign is not silent: it may be of an earlier release, or may have just started
        and not yet be known as this host.
        """
        host = self._hosts.get(name)
        return (0.0, 0.0) if host is None or host.pid != pid else (host.silent_s, host.stopped_s)


def is_stopped(pid: int) -> bool:
    """Return whether a process was stopped by a signal, rather than by a debugger."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] == "T"
