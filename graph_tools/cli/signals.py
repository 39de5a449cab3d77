# SPDX-License-Identifier: Apache-2.0
"""End a command on SIGINT or SIGTERM by an exception, so that no incomplete files stay behind.

The exception may be raised at any place: in a `__del__`, which swallows it and lets Python print "Exception ignored",
in the constructor of a session, whose `__del__` then fails, or in a function that TensorFlow's C++ code calls, which
prints a stack and gives another error. None of this is for the user, and none of it may let the command go on.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

_PAUSE_S = 0.01
_received: list[int] = []


def end_on_signals(*others: int) -> None:
    """Raise KeyboardInterrupt on SIGINT, and SystemExit on SIGTERM and the signals `others`.

    SIGINT stays ignored if the shell has started the command so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    for number in (signal.SIGTERM, *others):
        signal.signal(number, _end)


def received() -> int | None:
    """Return the number of the signal that ends the command, or None."""
    return _received[0] if _received else None


def _end(number: int, _: FrameType | None) -> None:
    if not _received:
        _received.append(number)
        sys.unraisablehook = _send_again
        _hide_output_of_libraries()
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _hide_output_of_libraries() -> None:
    """Let only `sys.stderr` write to where file descriptor 2 leads."""
    sys.stderr.flush()
    sys.stderr = open(os.dup(2), "w", encoding=sys.stderr.encoding, errors="backslashreplace", buffering=1)  # noqa: SIM115
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)


def _send_again(swallowed: Any) -> None:
    """Send the signal again, shortly after the code that could not hand on its exception."""
    if issubclass(swallowed.exc_type, (KeyboardInterrupt, SystemExit)):
        again = threading.Timer(_PAUSE_S, os.kill, (os.getpid(), _received[0]))
        again.daemon = True
        again.start()
