# SPDX-License-Identifier: Apache-2.0
"""What the tables of a model have learned, and what they cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from elastic_training.layers.parts_of_model import objects_of, tables_of
from elastic_training.reports.sample import RowSample, percentiles, sample_rows
from elastic_training.reports.text_table import text_table
from elastic_training.table import Table

SAMPLED_ROWS = 50_000
_NOT_FINITE = "their gradients had NaN, infinity or huge numbers"


@dataclass(frozen=True)
class TableReport:
    """The state of one table.

    Attributes
    ----------
    name : str
    features : tuple of str
        Features that read it; empty if the report was made of tables.
    dim : int
    step : int
        Number of updates.
    occurrences : int
        Keys that training has looked up, with repetitions.
    rows, candidates : int
        Keys with a row, and keys that the table counts without one.
    zero_rows : int
        Rows whose weights are all zero. Tables under group lasso count them; for others the sample gives an estimate.
    released_rows : int
        Zero rows whose memory was given back.
    admitted, evicted : int
        Keys that got a row, and rows that were removed, since the table was made in this process: files and checkpoints
        do not have these counters, and rows that are loaded do not count as admitted.
    refused : int
        How often a key of a batch found no row and was not admitted.
    refused_updates : int
        Rows that kept their values because a gradient was not finite.
    dropped_updates : int
        Updates whose row was evicted after its lookup.
    bytes, used_bytes, filter_bytes : int [bytes]
        Memory that the table takes, without what new rows will use, and of it the admission filter.
    bytes_per_row : float [bytes]
        Used memory for each row, with slots, index, candidates and filter.
    sampled_rows : int
        Number of rows of which the percentiles are.
    norms : {percentile: float}
        L2 norms of rows that are not zero.
    counts : {percentile: float}
        How often training has looked up the keys with a row.
    idle_s : {percentile: float} [s]
        Time since training last looked up the keys with a row.
    filter, eviction : dict
        Counters of the admission filter and of sweeps.
    tiers : dict
        For tables with `et.Tiers`: rows in memory and on SSD, rows moved, and under "log" bytes, reads and reclaimed
        files; else empty.
    sample : RowSample
        The sampled rows themselves, for histograms; not in the JSON.
    """

    name: str
    features: tuple[str, ...]
    dim: int
    step: int
    occurrences: int
    rows: int
    candidates: int
    zero_rows: int
    released_rows: int
    admitted: int
    evicted: int
    refused: int
    refused_updates: int
    dropped_updates: int
    bytes: int
    used_bytes: int
    filter_bytes: int
    bytes_per_row: float
    sampled_rows: int
    norms: dict[str, float]
    counts: dict[str, float]
    idle_s: dict[str, float]
    filter: dict[str, Any]
    eviction: dict[str, Any]
    tiers: dict[str, Any]
    sample: RowSample = field(repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self) if item.name != "sample"}


@dataclass(frozen=True)
class Report:
    """The state of all tables of a model; `print` shows it as a table."""

    tables: tuple[TableReport, ...]

    def of(self, table: str) -> TableReport:
        """Return the report of a table, or of the table of a feature."""
        for one in self.tables:
            if one.name == table or table in one.features:
                return one
        raise KeyError(f"report of {table!r}, expected one of {[one.name for one in self.tables]}")

    def to_json(self) -> dict[str, Any]:
        return {"tables": [one.to_json() for one in self.tables]}

    def __str__(self) -> str:
        numbers = ("dim", "rows", "zero", "candidates", "admitted", "refused", "evicted", "MB", "B/row")
        distributions = ("count p50", "p99", "norm p50", "p99", "idle h p50", "p99")
        lines: list[tuple[str, ...]] = [("table", "features", *numbers, *distributions)]
        for one in self.tables:
            whole = (one.dim, one.rows, one.zero_rows, one.candidates, one.admitted, one.refused, one.evicted)
            spread = [
                f"{values[number] / unit:,.{digits}f}" if values else ""
                for values, unit, digits in ((one.counts, 1, 0), (one.norms, 1, 3), (one.idle_s, 3600, 1))
                for number in ("50", "99")
            ]
            memory = (f"{one.bytes / 1e6:,.2f}", f"{one.bytes_per_row:,.0f}")
            users = ", ".join(one.features)
            lines.append((one.name, users, *(f"{number:,}" for number in whole), *memory, *spread))
        bad = [one for one in self.tables if one.refused_updates]
        warnings = [
            f"table {one.name!r}: {one.refused_updates:,} updates of rows refused: {_NOT_FINITE}" for one in bad
        ]
        return "\n".join([text_table(lines, names=2), *warnings])


def report(model_or_tables: Any, *, sample: int = SAMPLED_ROWS) -> Report:
    """Report what the tables of a model have learned, and what they cost.

    Counters are exact. Percentiles are those of a sample of rows, chosen by their hashes, so that a report takes a
    bounded time and memory for tables of any size; training may go on meanwhile.

    Parameters
    ----------
    model_or_tables : Keras model or layer, tf.Module, Table, or iterable of Table
    sample : int
        Number of rows of each table to sample.

    Returns
    -------
    Report

    Raises
    ------
    ValueError
        If there are no tables yet, or `sample` is below 1.
    """
    if isinstance(sample, bool) or not isinstance(sample, int) or sample < 1:
        raise ValueError(f"report: sample is {sample!r}, expected a number of rows from 1 on")
    given, users = find_tables(model_or_tables), features_of(model_or_tables)
    if not given:
        what = "expected a model that has seen keys, or tables"
        raise ValueError(f"report: {type(model_or_tables).__name__} has no tables, {what}")
    return Report(tuple(_of_table(table, tuple(users.get(id(table), ())), sample) for table in given))


def find_tables(model_or_tables: Any) -> list[Table]:
    """Return the tables of a model, or those given."""
    if isinstance(model_or_tables, Table):
        return [model_or_tables]
    if isinstance(model_or_tables, Mapping):
        model_or_tables = list(model_or_tables.values())
    if isinstance(model_or_tables, Iterable):
        tables = list(model_or_tables)
        if tables and all(isinstance(table, Table) for table in tables):
            return tables
        model_or_tables = tables
    return tables_of(model_or_tables)


def features_of(model: Any) -> dict[int, list[str]]:
    """Return the names of the features that read each table, by the table's id; a layer of one feature has its name."""
    users: dict[int, list[str]] = {}
    for part in objects_of(model):
        group = getattr(part, "_group", None)
        if group is None:
            continue
        for feature, table in group.readers().items():
            name = part.name if feature == "keys" else feature
            known = users.setdefault(id(table), [])
            if name not in known:
                known.append(name)
    return users


def _of_table(table: Table, features: tuple[str, ...], most: int) -> TableReport:
    stats, rows = table.stats(), sample_rows(table, most)
    zero = int(np.count_nonzero(rows.norms == 0))
    zero_rows = int(stats["zero_rows"]) or round(zero / max(rows.norms.size, 1) * stats["rows"])
    names = ("step", "occurrences", "rows", "candidates", "released_rows", "admitted", "evicted", "refused")
    more = ("refused_updates", "dropped_updates", "bytes", "used_bytes", "filter_bytes")
    return TableReport(
        name=table.name,
        features=features,
        dim=table.dim,
        zero_rows=zero_rows,
        bytes_per_row=stats["used_bytes"] / stats["rows"] if stats["rows"] else 0.0,
        sampled_rows=rows.norms.size,
        norms=percentiles(rows.norms[rows.norms > 0]),
        counts=percentiles(rows.counts),
        idle_s=percentiles(rows.idle_s),
        filter=dict(stats["filter"]),
        eviction=dict(stats["eviction"]),
        tiers=dict(stats.get("tiers", {})),
        sample=rows,
        **{name: int(stats[name]) for name in (*names, *more)},
    )
