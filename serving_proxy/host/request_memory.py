# SPDX-License-Identifier: Apache-2.0
"""How much memory requests take that have not come in full.

gRPC keeps the parts of a request until it is complete, and tells nobody how much it has. So the growth of the process
is what counts: from when no request was late in coming.
"""

from __future__ import annotations

import os

_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Return the memory of this process that is there."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * _PAGE


class RequestMemory:
    """Says when requests that are coming have filled their share.

    Parameters
    ----------
    most : int [bytes]
        Their share.

    Attributes
    ----------
    loading : bool
        Whether versions come or go, which is growth of another kind: nothing is told of requests then.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._quiet = resident_bytes()
        self.loading = False

    def is_full(self, *, waiting: bool) -> bool:
        """Look; `waiting`: whether requests are late in coming."""
        now = resident_bytes()
        if not waiting or self.loading:
            self._quiet = now
            return False
        return now - self._quiet > self._most
