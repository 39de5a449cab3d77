# SPDX-License-Identifier: Apache-2.0
"""The time to wait before a host is started again."""

from __future__ import annotations

_FIRST_S = 0.5
_LONGEST_S = 30.0
_HEALTHY_S = 60.0
_MOST_ONCE_READY = 2


def delay(failures: int) -> float:
    """Return the delay after this number of failures in a row [s]: 0.5, 1, 2, and so on up to 30."""
    return min(_LONGEST_S, _FIRST_S * 2.0 ** min(max(0, failures - 1), 16))


def failures_after(before: int, ran_s: float, was_ready: bool = False) -> int:
    """Return the number of failures in a row.

    The count starts again after a host has run for a minute. If the host had been ready, the delay stays at a second at
    most: its versions can be served, and the host finds out which version made it crash.
    """
    if ran_s >= _HEALTHY_S:
        return 1
    return min(before + 1, _MOST_ONCE_READY) if was_ready else before + 1
