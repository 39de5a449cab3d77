# SPDX-License-Identifier: Apache-2.0
"""Signs of life of hosts: a file that a host touches while it can answer, and what the kernel says of its process.

Touching needs no room on the disk, so that a full one does not look like a host that hangs. Time is counted here, in
steps of a second at most: a proxy that was itself stopped, or a machine that slept, blames nobody.
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
    """The file of a host's own.

    Parameters
    ----------
    state_dir : Path
    host_id : str
    """

    def __init__(self, state_dir: Path, host_id: str) -> None:
        self._path = state_dir / "hosts" / host_id / FILE

    def beat(self) -> None:
        """Say that this process can answer; a fault of the disk is not its fault."""
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
    """Knows for how long each host has been silent."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Watched] = {}
        self._last = time.monotonic()
        self._step = 0.0

    def begin(self) -> None:
        """Begin a look at all hosts."""
        now = time.monotonic()
        self._step, self._last = min(now - self._last, _MOST_STEP_S), now

    def look(self, name: str, folder: Path, pid: int) -> None:
        """Look at one host, a process that runs."""
        try:
            beat = os.stat(folder / FILE).st_mtime_ns
        except OSError:
            beat = 0
        host = self._hosts.get(name)
        if host is None or host.pid != pid:
            # What a former process has left behind is no sign of this one.
            self._hosts[name] = _Watched(pid, beat)
            return
        host.stopped_s = host.stopped_s + self._step if is_stopped(pid) else 0.0
        if beat != host.beat:
            host.beat, host.has_beaten, host.silent_s = beat, True, 0.0
        elif host.has_beaten:
            host.silent_s += self._step

    def silence(self, name: str, pid: int) -> tuple[float, float]:
        """Return for how long a process has not given any sign [s], and for how long it has been stopped [s].

        A program that never gives one, as of a former release, is not silent; nor is one that has just been started,
        and has not said yet that it is this host.
        """
        host = self._hosts.get(name)
        return (0.0, 0.0) if host is None or host.pid != pid else (host.silent_s, host.stopped_s)


def is_stopped(pid: int) -> bool:
    """Say whether a process was stopped by a signal; one that a debugger holds was not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] == "T"
