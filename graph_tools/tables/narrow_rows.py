# SPDX-License-Identifier: Apache-2.0
"""Find rows that end in zeros, of which a table's file stores only the elements before these."""

from __future__ import annotations

import numpy as np

from graph_tools.store.row_runs import MOST_NARROW_WIDTHS, NarrowRows, row_runs
from graph_tools.store.row_sizes import row_stride
from graph_tools.store.spec import EncodedRows, TableSpec
from graph_tools.tensors import Array, rows_between, rows_per_chunk

# Rows of different widths are copied before they are read, so they must save a quarter of the rows.
_LEAST_SAVED = 0.25
_LEAST_ROWS = 64


def find_narrow_rows(spec: TableSpec) -> tuple[NarrowRows, ...]:
    """Return widths with which the rows of a table take the fewest bytes; none if these save little.

    Rows must be in the order of their widths, the widest ones first, and not quantized, since zeros then need not have
    a code.
    """
    count, dim = spec.rows.shape[0], spec.dim
    if isinstance(spec.rows, EncodedRows) or count < _LEAST_ROWS or dim < 2:
        return ()
    if _widths(rows_between(spec.rows, count - 1, count))[0] == dim:
        return ()
    first = _first_rows(spec)
    chosen: tuple[NarrowRows, ...] = ()
    size = whole = _bytes(spec, ())
    while len(chosen) < MOST_NARROW_WIDTHS:
        taken = {each.dim for each in chosen}
        tried = [
            tuple(sorted((*chosen, NarrowRows(int(first[width]), width)), key=lambda each: each.first))
            for width in range(1, dim)
            if width not in taken and first[width] < count
        ]
        # Of widths that begin at the same row, only the least one helps.
        tried = [each for each in tried if len({rows.first for rows in each}) == len(each)]
        best = min(tried, key=lambda each: _bytes(spec, each), default=())
        if not best or _bytes(spec, best) >= size:
            break
        chosen, size = best, _bytes(spec, best)
    return chosen if size <= (1 - _LEAST_SAVED) * whole else ()


def _widths(rows: Array) -> Array:
    """Return for each row [n, dim] how many elements are before its last zeros [n]."""
    there = np.asarray(rows != 0)[:, ::-1]
    widths: Array = np.where(there.any(axis=1), rows.shape[1] - there.argmax(axis=1), 0)
    return widths


def _first_rows(spec: TableSpec) -> Array:
    """Return for each width [dim] the row from which on all rows are at most so wide."""
    last = np.full(spec.dim + 1, -1, np.int64)
    place = 0
    for chunk in spec.rows.chunks(rows_per_chunk(spec.rows)):
        widths = _widths(chunk)
        # The last row of each width: a later assignment replaces an earlier one.
        last[widths] = place + np.arange(len(widths))
        place += len(widths)
    wider = np.maximum.accumulate(last[::-1])[::-1]
    first: Array = np.append(wider[1:] + 1, 0)
    return first


def _bytes(spec: TableSpec, narrow: tuple[NarrowRows, ...]) -> int:
    full = (spec.dim, row_stride(spec.row_type, spec.dim))
    runs = row_runs(spec.rows.shape[0], 0, spec.row_type, full, narrow)
    return runs[-1].offset + runs[-1].size
