# SPDX-License-Identifier: Apache-2.0
"""What a conversion remembers of a table: where its rows were, and under which names they are now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.tables.blocks import TableRows, as_int64
from graph_tools.tables.plan import TablePlan
from graph_tools.tables.reachable_rows import Reach
from graph_tools.tables.streams import TableStreams
from graph_tools.tensors import Array, StreamTensor, TensorSource

INDEX, TABLE = "index", "table"
"""Parts of a stored table beside `rows`, or `codes` and `scale_bias`."""

NOTHING = Absent(None, "a variable holds every row that is asked for")


@dataclass(frozen=True)
class StoredTable:
    """A table as it was and as it is stored.

    Attributes
    ----------
    source : SparseTable
        Keys int64 or strings, as lookups ask for them; of a plain variable, the row numbers.
    reach : Reach
        Keys that the graph can ask for: only they have to have their rows.
    plain : bool
        A variable, not a sparse table.
    layout, share, row_type : str
        As in `TablePlan`.
    names : mapping of str to str
        Handles by part: `rows`, or `codes` and `scale_bias`; `index`; `table`.
    low : int
        Key of row 0, where keys are not hashed.
    stored : int
        Rows with keys; the last is of zeros where `has_zero_row`. Those of absent keys are behind them.
    has_zero_row : bool
    absent : int
        Rows of absent keys.
    missing : int
        What an index holds for a key that is absent.
    has_gaps : bool
        Between the smallest and the largest key, some are absent.
    """

    source: SparseTable
    reach: Reach
    plain: bool
    layout: str
    share: str
    row_type: str
    names: Mapping[str, str]
    low: int
    stored: int
    has_zero_row: bool
    absent: int
    missing: int
    has_gaps: bool


def remember(plan: TablePlan, streams: TableStreams, names: Mapping[str, str]) -> StoredTable:
    """Describe a planned table whose variables have been added under these names."""
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
    """Return the table that is to be found again: with the absent value that its lookups agree on."""
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
        return numbered(begin, begin + part.rows.shape[0])
    keys = part.keys
    if keys.dtype == object or keys.dtype == np.int64:
        return keys

    def make(count: int) -> Iterator[Array]:
        for block in keys.chunks(count):
            yield as_int64(block)

    return StreamTensor(np.dtype(np.int64), keys.shape, make)


def numbered(begin: int, end: int) -> StreamTensor:
    """Return the tensor begin, begin + 1, …, end - 1, int64."""

    def make(rows: int) -> Iterator[Array]:
        for first in range(begin, end, rows):
            yield np.arange(first, min(end, first + rows), dtype=np.int64)

    shape: Any = (max(0, end - begin),)
    return StreamTensor(np.dtype(np.int64), shape, make)
