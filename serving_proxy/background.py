# SPDX-License-Identifier: Apache-2.0
"""What processes that work for the proxy do first, so that they keep nothing waiting that serves."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

from serving_proxy.cpus import parse_cpus

_PR_SET_PDEATHSIG = 1
_ENOUGH_IDLE = 0.1
_WATCHED_S = 0.1


def step_back(cpus: str | None) -> None:
    """Take a low priority, and end when the proxy does."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if cpus:
        os.setpriority(os.PRIO_PROCESS, 0, 10)
        os.sched_setaffinity(0, parse_cpus(cpus, "--maintenance-cpus"))
    elif _idle_share() >= _ENOUGH_IDLE:
        # Where it shares CPUs with what serves, it runs when they are idle, and never keeps anything waiting.
        os.setpriority(os.PRIO_PROCESS, 0, 19)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        # Of busy CPUs that would be a 300th, and nobody without privileges may raise it again: a tenth, as for loads.
        os.setpriority(os.PRIO_PROCESS, 0, 10)


def _idle_share() -> float:
    """Watch the machine for a moment; return the share of its CPUs' time that nobody used."""
    idle, total = _ticks()
    time.sleep(_WATCHED_S)
    idle_now, total_now = _ticks()
    return (idle_now - idle) / (total_now - total) if total_now > total else 1.0


def _ticks() -> tuple[int, int]:
    with open("/proc/stat", encoding="ascii") as file:
        # user, nice, system, idle, iowait, irq, softirq, steal
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)
