# SPDX-License-Identifier: Apache-2.0
"""How long to wait before a host is started again."""

from __future__ import annotations

_FIRST_S = 0.5
_LONGEST_S = 30.0
_HEALTHY_S = 60.0
_MOST_ONCE_READY = 2


def delay(failures: int) -> float:
    """Return the seconds to wait after so many failures in a row: 0.5, 1, 2, and so on up to 30."""
    return min(_LONGEST_S, _FIRST_S * 2.0 ** min(max(0, failures - 1), 16))


def failures_after(before: int, ran_s: float, was_ready: bool = False) -> int:
    """Count failures in a row.

    A host that ran for a minute begins anew. One that had been ready can serve: what it served is not kept down for
    longer than a second, while the host finds out which version it died of.
    """
    if ran_s >= _HEALTHY_S:
        return 1
    return min(before + 1, _MOST_ONCE_READY) if was_ready else before + 1
