# SPDX-License-Identifier: Apache-2.0
"""Find out whether the thread of the event loop limits the host's rate."""

from __future__ import annotations

import os
import time

_PERIOD_NS = 50_000_000
_BUSY = 0.85


class LoopLoad:
    """Measures how much of the time the current thread computes. For the thread of one event loop.

    A thread that has to wait for a CPU does not count as busy: work that it hands over would wait as well.
    """

    def __init__(self) -> None:
        self._since = time.monotonic_ns()
        self._used = time.thread_time_ns()
        self._several_cpus = len(os.sched_getaffinity(0)) > 1
        self._saturated = False

    def is_saturated(self) -> bool:
        """Return whether the thread computed nearly all of the time lately, while the process has further CPUs."""
        now = time.monotonic_ns()
        passed = now - self._since
        if passed >= _PERIOD_NS:
            used = time.thread_time_ns()
            self._saturated = self._several_cpus and used - self._used > _BUSY * passed
            self._since, self._used = now, used
        return self._saturated
