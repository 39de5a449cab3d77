# SPDX-License-Identifier: Apache-2.0
"""Measure from the kernel's counters how much CPU time is used, and how much of it by other processes."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

_STAT = Path("/proc/stat")


class Ticks(NamedTuple):
    """Count the time of a CPU since the machine was started [kernel ticks]; `user` includes the time of guests."""

    user: int
    nice: int
    system: int
    idle: int
    iowait: int
    irq: int
    softirq: int
    steal: int

    @property
    def total(self) -> int:
        return sum(self)

    @property
    def busy(self) -> int:
        """Return the time that was used by any process or taken by the hypervisor."""
        return self.total - self.idle - self.iowait


def read_ticks(file: Path = _STAT) -> dict[int, Ticks]:
    """Return the ticks of every CPU that is online."""
    found = {}
    for line in file.read_text(encoding="ascii", errors="replace").splitlines():
        name, *words = line.split()
        if name.startswith("cpu") and name[3:].isdecimal():
            found[int(name[3:])] = Ticks(*(int(word) for word in words[:8]))
    return found


class Watch:
    """Measure CPU usage from the creation of this object.

    Parameters
    ----------
    cpus : collection of int, optional
        By default all CPUs of the machine.
    """

    def __init__(self, cpus: Collection[int] | None = None) -> None:
        self._cpus = cpus
        self._own_s, self._caller_s = time.process_time(), time.thread_time()
        self._begun = read_ticks()

    def busy(self) -> float:
        """Return the share of CPU time that was used."""
        busy, total = self._passed(self._cpus)
        return busy / total if total > 0 else 0.0

    def others(self) -> float:
        """Return the share of CPU time that other processes used: the time of this process is subtracted.

        The calling thread may have run on other CPUs; all other threads are assumed to have run on these.
        """
        own = (time.process_time() - self._own_s) * os.sysconf("SC_CLK_TCK")
        caller = (time.thread_time() - self._caller_s) * os.sysconf("SC_CLK_TCK")
        here, total = self._passed(self._cpus)
        anywhere, _ = self._passed(None)
        # The counters are read one after the other and count whole ticks.
        return min(1.0, max(0.0, min(here - own + caller, anywhere - own)) / total) if total > 0 else 0.0

    def _passed(self, cpus: Collection[int] | None) -> tuple[int, int]:
        """Return the busy ticks and the total ticks of CPUs."""
        now = read_ticks()
        both = [(self._begun[cpu], now[cpu]) for cpu in self._begun.keys() & now if cpus is None or cpu in cpus]
        return sum(b.busy - a.busy for a, b in both), sum(b.total - a.total for a, b in both)


def busy_share(seconds: float) -> float:
    """Watch the machine for some seconds [s]; return the share of CPU time that was used."""
    watch = Watch()
    time.sleep(seconds)
    return watch.busy()
