# SPDX-License-Identifier: Apache-2.0
"""Estimate the memory of requests that have not been received completely.

gRPC keeps the parts of a request until it is complete, and does not report their size. So the growth of the process
since the last moment without a late request is used.
"""

from __future__ import annotations

import os

_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Return the resident memory of this process [bytes]."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * _PAGE


class RequestMemory:
    """Detects when requests that are being received have filled their share of the memory.

    Parameters
    ----------
    most : int [bytes]
        Their share.

    Attributes
    ----------
    loading : bool
        Whether versions are being loaded or unloaded, which changes the memory too: requests are not judged meanwhile.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._quiet = resident_bytes()
        self.loading = False

    def is_full(self, *, waiting: bool) -> bool:
        """Return whether the share is full; `waiting`: whether requests are late."""
        now = resident_bytes()
        if not waiting or self.loading:
            self._quiet = now
            return False
        return now - self._quiet > self._most
