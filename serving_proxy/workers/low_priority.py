# SPDX-License-Identifier: Apache-2.0
"""Lower the priority of processes that work for the proxy, so that they do not delay serving."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from cost_model.cpu_time import busy_share
from serving_proxy.system.cpus import parse_cpus

_PR_SET_PDEATHSIG = 1
_ENOUGH_IDLE = 0.1
_WATCHED_S = 0.1


def lower_priority(cpus: str | None) -> None:
    """Lower the priority of this process, and end it when the proxy ends."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if cpus:
        os.setpriority(os.PRIO_PROCESS, 0, 10)
        os.sched_setaffinity(0, parse_cpus(cpus, "--maintenance-cpus"))
    elif 1 - busy_share(_WATCHED_S) >= _ENOUGH_IDLE:
        # On CPUs that it shares with hosts, it runs only while they are idle, and delays nothing.
        os.setpriority(os.PRIO_PROCESS, 0, 19)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        # On busy CPUs that would give it a 300th of the time, and without privileges a priority cannot be raised again.
        # This priority gives it a tenth, as for loads.
        os.setpriority(os.PRIO_PROCESS, 0, 10)
