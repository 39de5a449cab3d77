# SPDX-License-Identifier: Apache-2.0
"""Describe planned tables, so that the written tables can be compared with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from graph_tools.model.stored_table import StoredTable
from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.tables.blocks import TableRows, as_int64
from graph_tools.tables.plan import TablePlan
from graph_tools.tables.streams import TableStreams
from graph_tools.tensors import Array, StreamTensor, TensorSource

INDEX, TABLE = "index", "table"
"""Parts of a stored table in addition to `rows`, or `codes` and `scale_bias`."""

NOTHING = Absent(None, "a variable contains every row that is looked up")


def describe_stored(plan: TablePlan, streams: TableStreams, names: Mapping[str, str]) -> StoredTable:
    """Return the description of a planned table whose variables have been added under these names."""
    return StoredTable(
        source=_source_table(plan),
        reach=plan.reach,
        plain=plan.source.plain,
        layout=plan.layout.name,
        share=plan.layout.share,
        row_type=plan.row_type,
        names=names,
        low=plan.low,
        stored=streams.stored,
        has_zero_row=streams.has_zero_row,
        absent=plan.counts.absent,
        missing=-1 if plan.needs_missing else streams.absent_row,
        has_gaps=plan.counts.span != plan.counts.kept,
    )


def _source_table(plan: TablePlan) -> SparseTable:
    """Return the source table, with the absent value that its lookups agree on."""
    rows = plan.source
    key_dtype = np.dtype(object) if rows.string_keys else np.dtype(np.int64)
    parts = []
    begin = 0
    for part, ignored in zip(rows.parts, rows.ignored, strict=True):
        parts.append(Part(_keys(rows, part, begin), part.rows, ignored=ignored))
        begin += part.rows.shape[0]
    absent = NOTHING if plan.policy is None else plan.policy.absent
    return SparseTable(rows.name, rows.family, key_dtype, rows.dim, rows.dtype, parts, absent)


def _keys(rows: TableRows, part: Part, begin: int) -> TensorSource:
    if rows.plain:
        return number_range(begin, begin + part.rows.shape[0])
    keys = part.keys
    if keys.dtype == object or keys.dtype == np.int64:
        return keys

    def make(count: int) -> Iterator[Array]:
        for block in keys.chunks(count):
            yield as_int64(block)

    return StreamTensor(np.dtype(np.int64), keys.shape, make)


def number_range(begin: int, end: int) -> StreamTensor:
    """Return the tensor begin, begin + 1, …, end - 1, int64."""

    def make(rows: int) -> Iterator[Array]:
        for first in range(begin, end, rows):
            yield np.arange(first, min(end, first + rows), dtype=np.int64)

    shape: Any = (max(0, end - begin),)
    return StreamTensor(np.dtype(np.int64), shape, make)
