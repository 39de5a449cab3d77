# SPDX-License-Identifier: Apache-2.0
"""Forecast what the tables of a model take in each tier (docs/tiered_tables.md), in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from graph_tools.errors import UsageError
from graph_tools.json_data import Count, Fraction
from graph_tools.model import Model
from graph_tools.model.table_record import TableRecord
from graph_tools.model.table_size import RowsOfWidth, TableSize
from graph_tools.recognition.lookups.fused_tables import fused_tables
from graph_tools.tables.table_sizes import spec_size
from graph_tools.tensors import Array
from graph_tools.verification.evidence import gathered_rows
from graph_tools.verification.request import Request

HUGE_PAGE = 2 << 20
# The cache of libprocessor (row_cache.h): sets of twelve rows with a line of their own, and a line of counters for
# sixteen places.
_WAYS, _LINE, _PLACES_OF_LINE = 12, 64, 16


@dataclass(frozen=True)
class TableTiers:
    """What one table takes.

    Attributes
    ----------
    disk_bytes : int
        Its file, in every tier; `mapped` takes as much memory.
    resident_bytes : int
        Memory if it is `resident`: the file in huge pages.
    index_bytes : int
        Memory if it is `tiered`, besides the cache: keys, strings and checksums.
    cache_bytes, cached_rows : int or None
        The cache of a `tiered` table, and the rows for which it has places; None without a given memory.
    lookups : int or None
        Rows that the recorded requests read, each counted once per request; None: not known.
    cached_share : float or None
        Share of these that a cache of the rows that are read most often has. Caches reach about 0.01 less.
    """

    table: str
    disk_bytes: Count
    resident_bytes: Count
    index_bytes: Count
    cache_bytes: Count | None = None
    cached_rows: Count | None = None
    lookups: Count | None = None
    cached_share: Fraction | None = None


@dataclass(frozen=True)
class Tiers:
    """What all tables of a model take together; tables with equal content are counted each.

    Attributes
    ----------
    memory : int or None [bytes]
        The given memory of tiered tables.
    disk_bytes, resident_bytes, index_bytes : int
        Sums of those of the tables.
    """

    memory: Count | None
    disk_bytes: Count
    resident_bytes: Count
    index_bytes: Count
    tables: list[TableTiers] = field(default_factory=list)


def with_files(model: Model, records: Iterable[TableRecord]) -> list[TableRecord]:
    """Return the records of the tables of a cut model with the sizes of the files that `fuse` would make.

    Plans of tables know neither the keys of a variable that a hash table leads to, nor the widths of rows. If lookups
    make several files of a table, the largest one counts.
    """
    names = _names_of_rows(model)
    sizes: dict[str, TableSize] = {}
    for handle, spec in fused_tables(model):
        name, size = names.get(handle, handle), spec_size(spec)
        if name not in sizes or size.bytes > sizes[name].bytes:
            sizes[name] = size
    return [replace(record, file=sizes.get(record.name, record.file)) for record in records]


def forecast_tiers(
    model: Model, records: Iterable[TableRecord], memory: int | None = None, requests: Sequence[Request] = ()
) -> Tiers:
    """Return what the tables of a cut model take in each tier.

    Parameters
    ----------
    model : Model
        After the passes of `cut`.
    records : iterable of TableRecord
        As `with_files` returns them.
    memory : int, optional [bytes]
        Memory of tiered tables.
    requests : sequence of Request
        Recorded requests, which tell how often rows are read.

    Raises
    ------
    UsageError
        The memory is not above that of the indexes.
    """
    sizes = {record.name: record.file for record in records}
    index, row_data = (sum(getattr(size, name) for size in sizes.values()) for name in ("index_bytes", "row_data"))
    if memory is not None and row_data and memory <= index:
        raise UsageError(f"--memory: {memory} bytes, expected more than {index}, which the indexes of the tables take")
    share = (memory - index) / row_data if memory is not None and row_data else None
    read = _reads(model, requests) if requests else {}
    tables = [_tiers_of(name, size, share, read.get(name)) for name, size in sorted(sizes.items())]
    return Tiers(
        memory,
        sum(table.disk_bytes for table in tables),
        sum(table.resident_bytes for table in tables),
        index,
        tables,
    )


def _tiers_of(name: str, size: TableSize, share: float | None, reads: _Reads | None) -> TableTiers:
    cache = places = cached = None
    if share is not None:
        caches = caches_of(int(share * size.row_data), size.runs)
        places, cache = (sum(each) for each in zip(*caches, strict=True))
        if reads is not None and reads.counts.sum():
            cached = _cached(reads, [of_run for of_run, _ in caches], size.runs) / float(reads.counts.sum())
    resident = -(-size.bytes // HUGE_PAGE) * HUGE_PAGE
    lookups = None if reads is None else int(reads.counts.sum())
    return TableTiers(name, size.bytes, resident, size.index_bytes, cache, places, lookups, cached)


def caches_of(memory: int, runs: Sequence[RowsOfWidth]) -> list[tuple[int, int]]:
    """Return the places of the cache for the rows of each width, and the bytes that it takes (row_caches.h).

    The memory is divided so that an equal part of the rows of each width gets places.
    """
    whole = [run.rows * (run.row_bytes + _LINE / _WAYS + _LINE / _PLACES_OF_LINE) for run in runs]
    parts = [int(memory * each / max(sum(whole), 1)) for each in whole]
    return [cache_of(part, run.row_bytes, run.rows) for part, run in zip(parts, runs, strict=True)]


def _cached(reads: _Reads, places: Sequence[int], runs: Sequence[RowsOfWidth]) -> float:
    """Return how many reads the caches answer if they have the rows of each width that are read most often.

    Reads have the row numbers of the variable, which are taken for those of the file; docs/graph_tools.md names the
    tables for which they differ.
    """
    ends = np.cumsum([run.rows for run in runs])[:-1]
    of_run = np.searchsorted(ends, reads.rows, side="right")
    counts = [np.sort(reads.counts[of_run == number])[::-1] for number in range(len(runs))]
    return float(sum(found[:most].sum() for found, most in zip(counts, places, strict=True)))


def cache_of(memory: int, row_bytes: int, rows: int) -> tuple[int, int]:
    """Return the places of a cache for rows, and the bytes that it takes when all are used."""
    of_set = _LINE + _LINE * _WAYS // _PLACES_OF_LINE + _WAYS * row_bytes
    enough = rows // _WAYS + rows // _WAYS // 2 + 8
    sets = max(1, min(memory // of_set, enough))
    places = sets * _WAYS
    taken = sets * _LINE + max(1, places // _PLACES_OF_LINE) * _LINE + places * row_bytes
    return min(places, rows), taken


@dataclass(frozen=True)
class _Reads:
    """Numbers of the rows that were read [n], and how many requests read each [n]."""

    rows: Array
    counts: Array


def _reads(model: Model, requests: Sequence[Request]) -> Mapping[str, _Reads]:
    """Return the rows that requests read, by table."""
    names = _names_of_rows(model)
    return {
        names[handle]: _Reads(*np.unique(np.concatenate(numbers), return_counts=True))
        for handle, numbers in gathered_rows(model, requests).items()
        if handle in names and numbers
    }


def _names_of_rows(model: Model) -> dict[str, str]:
    """Return the name of each stored table by the handle of its rows or codes."""
    tables = model.stored_tables
    return {str(stored.names.get("rows") or stored.names.get("codes")): stored.source.name for stored in tables}
