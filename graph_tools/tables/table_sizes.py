# SPDX-License-Identifier: Apache-2.0
"""Forecast the file of a table (docs/table_format.md) that `fuse` would write, without writing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graph_tools.model.table_size import RowsOfWidth, TableSize
from graph_tools.options import RowType
from graph_tools.store.block_sums import BLOCK_BYTES
from graph_tools.store.index import home_buckets
from graph_tools.store.layout import BUCKET_BYTES, HEADER_BYTES, INDEX_ALIGNMENT, ROW_ALIGNMENT
from graph_tools.store.row_runs import RowRun, row_runs
from graph_tools.store.row_sizes import row_size, row_stride
from graph_tools.store.spec import TableSpec
from graph_tools.tables.costs import Counts, Layout, stored_rows
from graph_tools.tables.narrow_rows import find_narrow_rows

_TYPES: dict[str, RowType] = {"float16": "fp16", "bfloat16": "bf16"}
_SUM_BYTES = 4


def table_size(
    rows: int,
    dim: int,
    row_type: str,
    keys: int | None = None,
    string_bytes: int | None = None,
    runs: Sequence[RowRun] = (),
) -> TableSize:
    """Return the size of the file of a table.

    Parameters
    ----------
    rows : int
        With the rows of absent keys.
    keys : int, optional
        None: keys are the numbers of rows.
    string_bytes : int, optional
        Bytes of all keys, if they are strings.
    runs : sequence of RowRun
        Runs of rows of one width each, if rows have different widths. Together they are all of `rows`, default rows
        included.

    Notes
    -----
    Buckets beyond the homes of keys, of which a file has few, are not counted.
    """
    stride = row_stride(row_type, max(dim, 1))
    sections = [(ROW_ALIGNMENT, runs[-1].offset + runs[-1].size if runs else rows * stride)]
    index = 0
    if keys is not None:
        index = home_buckets(keys) * BUCKET_BYTES
        if string_bytes is not None:
            sections += [(INDEX_ALIGNMENT, string_bytes), (INDEX_ALIGNMENT, 8 * (keys + 1))]
            index += string_bytes + 8 * (keys + 1)
        sections.append((INDEX_ALIGNMENT, home_buckets(keys) * BUCKET_BYTES))
    end = HEADER_BYTES
    for alignment, size in sections:
        end = _up(end, alignment) + size if size else end
    sums = 0
    if end > HEADER_BYTES:
        end = _up(end, INDEX_ALIGNMENT)
        sums = _SUM_BYTES * -(-(end - HEADER_BYTES) // BLOCK_BYTES)
    widths = [RowsOfWidth(run.end - run.first, row_size(row_type, run.dim), run.stride) for run in runs]
    return TableSize(end + sums, index + sums, rows, row_size(row_type, max(dim, 1)), stride, widths)


def spec_size(spec: TableSpec) -> TableSize:
    """Return the size of the file that is written for a table; reads its string keys, and rows that end in zeros."""
    keys = None if spec.keys is None else spec.keys.shape[0]
    strings = None
    if spec.keys is not None and spec.index_kind == "string":
        strings = sum(len(key) for chunk in spec.keys.chunks(1 << 16) for key in chunk)
    rows, default = spec.rows.shape[0], 0 if spec.default_rows is None else spec.default_rows.shape[0]
    narrow = spec.narrow or find_narrow_rows(spec)
    full = spec.dim, row_stride(spec.row_type, spec.dim)
    runs = row_runs(rows, default, spec.row_type, full, narrow) if narrow else ()
    return table_size(rows + default, spec.dim, spec.row_type, keys, strings, runs)


def planned_size(layout: Layout, counts: Counts, row_type: str, strings: bool, zeros_if_absent: bool) -> TableSize:
    """Return the size of the file of a table that `cut` stores in this way.

    Parameters
    ----------
    strings : bool
        Keys are strings, each with a row of its own.
    zeros_if_absent : bool
        Absent keys have zeros, for which a file needs no row.
    """
    stored = _type_of(counts.dtype) if row_type == "fp32" else row_type
    absent = 0 if zeros_if_absent else counts.absent
    if layout.name in ("direct", "none"):
        span = counts.span if layout.name == "direct" else 0
        return table_size(span + absent, counts.dim, stored)
    if strings:
        # Analyses count the lengths of strings as varints, of a byte for nearly all.
        return table_size(counts.kept + absent, counts.dim, stored, counts.kept, counts.key_bytes - counts.kept)
    return table_size(stored_rows(layout, counts) + absent, counts.dim, stored, counts.kept)


def _type_of(dtype: np.dtype[Any]) -> RowType:
    return _TYPES.get(str(dtype), "fp32")


def _up(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
