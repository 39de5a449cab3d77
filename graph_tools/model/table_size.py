# SPDX-License-Identifier: Apache-2.0
"""The size of a table's file in reports."""

from __future__ import annotations

from dataclasses import dataclass

from graph_tools.json_data import Count, Positive


@dataclass(frozen=True)
class TableSize:
    """The size of a table's file.

    Attributes
    ----------
    bytes : int
        Of the whole file.
    index_bytes : int
        Of its keys, strings and checksums, which are in memory in every tier.
    rows : int
        Stored rows, with those of absent keys.
    row_bytes, row_stride : int
        Bytes of a row, and from one row to the next.
    """

    bytes: Count
    index_bytes: Count
    rows: Count
    row_bytes: Positive
    row_stride: Positive

    @property
    def row_data(self) -> int:
        """Return the bytes of all rows."""
        return self.rows * self.row_stride
