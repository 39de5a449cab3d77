# SPDX-License-Identifier: Apache-2.0
"""The size of a table's file in reports."""

from __future__ import annotations

from dataclasses import dataclass, field

from graph_tools.json_data import Count, Positive


@dataclass(frozen=True)
class RowsOfWidth:
    """Rows of one width in a table's file.

    Attributes
    ----------
    rows : int
    row_bytes, row_stride : int
        Bytes of a row, and from one row to the next.
    """

    rows: Count
    row_bytes: Positive
    row_stride: Positive


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
        Bytes of a row of full width, and from one row to the next.
    widths : list of RowsOfWidth
        Rows of each width in the order of the file, if there are several.
    """

    bytes: Count
    index_bytes: Count
    rows: Count
    row_bytes: Positive
    row_stride: Positive
    widths: list[RowsOfWidth] = field(default_factory=list)

    @property
    def runs(self) -> list[RowsOfWidth]:
        """Return the rows of each width, also if there is one width."""
        return self.widths or [RowsOfWidth(self.rows, self.row_bytes, self.row_stride)]

    @property
    def row_data(self) -> int:
        """Return the bytes of all rows."""
        return sum(run.rows * run.row_stride for run in self.runs)
