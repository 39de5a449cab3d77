# SPDX-License-Identifier: Apache-2.0
"""Forecast what the tables of a model take in each tier (docs/tiered_tables.md), in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from graph_tools.errors import UsageError
from graph_tools.json_data import Count, Fraction
from graph_tools.model import Model
from graph_tools.model.table_record import TableRecord
from graph_tools.model.table_size import TableSize
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


def forecast_tiers(
    model: Model, records: Iterable[TableRecord], memory: int | None = None, requests: Sequence[Request] = ()
) -> Tiers:
    """Return what the tables of a cut model take in each tier.

    Parameters
    ----------
    model : Model
        After the passes of `cut`.
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


def _tiers_of(name: str, size: TableSize, share: float | None, reads: Array | None) -> TableTiers:
    cache = places = cached = None
    if share is not None:
        places, cache = cache_of(int(share * size.row_data), size.row_bytes, size.rows)
        if reads is not None and reads.sum():
            cached = float(np.sort(reads)[::-1][:places].sum() / reads.sum())
    resident = -(-size.bytes // HUGE_PAGE) * HUGE_PAGE
    lookups = None if reads is None else int(reads.sum())
    return TableTiers(name, size.bytes, resident, size.index_bytes, cache, places, lookups, cached)


def cache_of(memory: int, row_bytes: int, rows: int) -> tuple[int, int]:
    """Return the places of a cache for rows, and the bytes that it takes when all are used."""
    of_set = _LINE + _LINE * _WAYS // _PLACES_OF_LINE + _WAYS * row_bytes
    enough = rows // _WAYS + rows // _WAYS // 2 + 8
    sets = max(1, min(memory // of_set, enough))
    places = sets * _WAYS
    taken = sets * _LINE + max(1, places // _PLACES_OF_LINE) * _LINE + places * row_bytes
    return min(places, rows), taken


def _reads(model: Model, requests: Sequence[Request]) -> Mapping[str, Array]:
    """Return how many requests read each row that was read, by table."""
    variables = gathered_rows(model, requests)
    found: dict[str, Array] = {}
    for stored in model.stored_tables:
        handle = stored.names.get("rows") or stored.names.get("codes")
        numbers = variables.get(str(handle))
        if numbers:
            found[stored.source.name] = np.unique(np.concatenate(numbers), return_counts=True)[1]
    return found
