# SPDX-License-Identifier: Apache-2.0
"""Wait for events in another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(condition: Callable[[], Found], what: object = "", *, timeout: float = 60.0) -> Found:
    """Call `condition` every 10 ms until its result is true, and return it; fail after `timeout` seconds."""
    end = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < end, f"{what or condition}: not within {timeout} s"
        time.sleep(0.01)
    return found
