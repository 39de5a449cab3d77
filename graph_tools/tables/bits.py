# SPDX-License-Identifier: Apache-2.0
"""One bit for each row of a table: a table of a thousand million rows needs 125 MB for it."""

from __future__ import annotations

import numpy as np

from graph_tools.tensors import Array


class Bits:
    """Bits [length], all clear at first.

    Attributes
    ----------
    count : int
        How many are set.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.count = 0
        self._packed = np.zeros((length + 7) // 8, np.uint8)

    @property
    def all(self) -> bool:
        return self.count == self.length

    def set(self, begin: int, mask: Array) -> None:
        """Set the bits from `begin` on where mask [n] bool is; bits already set stay."""
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
