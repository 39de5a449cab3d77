# SPDX-License-Identifier: Apache-2.0
"""Store one bit for each row of a table: 125 MB for a table of a thousand million rows."""

from __future__ import annotations

import numpy as np

from graph_tools.tensors import Array


class Bits:
    """Bits [length], all clear at first.

    Attributes
    ----------
    count : int
        Number of bits that are set.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.count = 0
        self._packed = np.zeros((length + 7) // 8, np.uint8)

    @property
    def all(self) -> bool:
        return self.count == self.length

    def set(self, begin: int, mask: Array) -> None:
        """Set the bits from `begin` on for which mask [n] bool is true; bits that are set already stay set."""
        if not len(mask):
            return
        before = self.get(begin, begin + len(mask))
        self.count += int(np.count_nonzero(mask & ~before))
        lead = begin % 8
        padded = np.concatenate([np.zeros(lead, bool), mask]) if lead else mask
        packed = np.packbits(padded, bitorder="little")
        self._packed[begin // 8 : begin // 8 + len(packed)] |= packed

    def get(self, begin: int, end: int) -> Array:
        """Return bits [end - begin] bool."""
        packed = self._packed[begin // 8 : (end + 7) // 8]
        lead = begin % 8
        return np.unpackbits(packed, count=lead + end - begin, bitorder="little")[lead:].view(np.bool_)
