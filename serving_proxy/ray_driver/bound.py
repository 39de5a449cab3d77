# SPDX-License-Identifier: Apache-2.0
"""Become another program that gets SIGTERM when the thread ends that has started it, and has the usual priority.

    python bound.py PARENT PROGRAM ARGUMENT...

It is run as a file by a Python without packages, because code between fork and exec is not safe in a process with
threads, such as that of an actor.
"""

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent = int(sys.argv[1])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getpriority(os.PRIO_PROCESS, 0) > 0:
        # Ray starts actors at nice 15 by default. Without the capability SYS_NICE this cannot be undone.
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)
    # It may have ended before.
    if os.getppid() == parent:
        os.execv(sys.argv[2], sys.argv[2:])
