# SPDX-License-Identifier: Apache-2.0
"""What processes that work for the proxy do first, so that they keep nothing waiting that serves."""

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
    """Take a low priority, and end when the proxy does."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if cpus:
        os.setpriority(os.PRIO_PROCESS, 0, 10)
        os.sched_setaffinity(0, parse_cpus(cpus, "--maintenance-cpus"))
    elif 1 - busy_share(_WATCHED_S) >= _ENOUGH_IDLE:
        # Where it shares CPUs with what serves, it runs when they are idle, and never keeps anything waiting.
        os.setpriority(os.PRIO_PROCESS, 0, 19)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        # Of busy CPUs that would be a 300th, and nobody without privileges may raise it again: a tenth, as for loads.
        os.setpriority(os.PRIO_PROCESS, 0, 10)
