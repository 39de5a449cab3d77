# SPDX-License-Identifier: Apache-2.0
"""What processes that work for the proxy do first, so that they keep nothing waiting that serves."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from serving_proxy.cpus import parse_cpus

_PR_SET_PDEATHSIG = 1


def step_back(cpus: str | None) -> None:
    """Take the lowest priority, and end when the proxy does."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    os.nice(19)
    if cpus:
        os.sched_setaffinity(0, parse_cpus(cpus, "--maintenance-cpus"))
    else:
        # Where it shares CPUs with what serves, it runs when they are idle, and never keeps anything waiting.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
