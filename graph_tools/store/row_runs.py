# SPDX-License-Identifier: Apache-2.0
"""Where the rows of a table's file are: runs of rows of one width, as docs/table_format.md describes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graph_tools.store.row_sizes import row_stride

#: Most widths of rows below the full one.
MOST_NARROW_WIDTHS = 4
#: Where runs may begin, counted from the first row.
RUN_ALIGNMENT = 64


@dataclass(frozen=True)
class NarrowRows:
    """Rows from number `first` on have only `dim` elements; the others of their vectors are zeros.

    Attributes
    ----------
    first, dim : int
    """

    first: int
    dim: int


@dataclass(frozen=True)
class RowRun:
    """Consecutive rows of one width.

    Attributes
    ----------
    first, end : int
        Number of the first row, and of the one after the last.
    dim : int
        Elements of a row.
    stride : int [bytes]
    offset : int [bytes]
        Of the first row, from the beginning of the section `row_data`.
    """

    first: int
    end: int
    dim: int
    stride: int
    offset: int

    @property
    def size(self) -> int:
        """Return the bytes of the run."""
        return (self.end - self.first) * self.stride


def row_runs(
    rows: int, default_rows: int, row_type: str, full: tuple[int, int], narrow: Sequence[NarrowRows]
) -> list[RowRun]:
    """Return the runs of a table, in the order of its rows.

    Parameters
    ----------
    full : (int, int)
        Elements of rows of full width, which default rows have, and bytes from one to the next.
    """
    dim, stride = full
    if not narrow:
        spans = [(0, rows + default_rows, dim, stride)]
    else:
        ends = [*(each.first for each in narrow[1:]), rows]
        spans = [(0, narrow[0].first, dim, stride)]
        spans += [
            (each.first, end, each.dim, row_stride(row_type, each.dim)) for each, end in zip(narrow, ends, strict=True)
        ]
        spans.append((rows, rows + default_rows, dim, stride))
    found: list[RowRun] = []
    place = 0
    for first, end, width, step in spans:
        if first == end:
            continue
        place = -(-place // RUN_ALIGNMENT) * RUN_ALIGNMENT
        found.append(RowRun(first, end, width, step, place))
        place += found[-1].size
    return found


def rows_problem(rows: int, dim: int, narrow: Sequence[NarrowRows]) -> str | None:
    """Return why these widths are not valid, as `found, expected what`, or None."""
    if len(narrow) > MOST_NARROW_WIDTHS:
        return f"{len(narrow)} widths of narrow rows, expected at most {MOST_NARROW_WIDTHS}"
    before, width = -1, dim
    for each in narrow:
        if not before < each.first < rows or not 1 <= each.dim < width:
            found = f"rows of width {each.dim} from row {each.first} of {rows} on"
            return f"{found}, expected ascending rows and widths that descend from {dim}"
        before, width = each.first, each.dim
    return None
