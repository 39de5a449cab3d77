# SPDX-License-Identifier: Apache-2.0
"""Begin with the rows of another training system, which `graph-tools convert` has written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elastic_training.reports.report import find_tables
from elastic_training.reports.sample import EPOCH_S
from elastic_training.table import FULL, Table

if TYPE_CHECKING:
    from graph_tools.store.reader import TableReader

# Rows that pass through memory at a time.
_BLOCK_ROWS = 1 << 16
_LIST_FILE = "tables.json"
_SCHEMA = "convert_report/1"

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class LoadedTable:
    """What load_tables put into a table.

    Attributes
    ----------
    table : str
        Name of the table that was filled.
    source : str
        Name of the table in the folder, or the file.
    family : str
        The training system that it comes from; "" for a file alone.
    rows : int
    counted : bool
        Whether the source has frequencies, which became the counts of the rows.
    """

    table: str
    source: str
    family: str
    rows: int
    counted: bool


@dataclass(frozen=True)
class _Source:
    """A table's file, and the one with its frequencies."""

    name: str
    family: str
    file: Path
    counts: Path | None = None


def load_tables(
    model_or_tables: Any,
    path: str | Path,
    *,
    names: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> list[LoadedTable]:
    """Fill tables with the rows of table files.

    The rows become weights; slots of the optimizer begin as for new rows, also where a table already has a row of the
    key. Keys count as admitted, and as met by training now. The other rows of a table stay. All files are checked
    before a row is written; blocks of rows pass through memory, so its use does not depend on the size of a file.

    Parameters
    ----------
    model_or_tables : as for `report`
    path : path
        The folder that `graph-tools convert` wrote, or one file (`.emb`) if there is one table.
    names : {table: name in the folder}, optional
        Which tables to fill, and with which; None: all, each with that of its own name.
    progress : callable, optional
        Called with the name of a table, the number of its rows that are loaded, and their total.

    Returns
    -------
    list of LoadedTable

    Raises
    ------
    ValueError
        A table does not exist, or its keys, row length or file do not fit; the message names it. Nothing is loaded.
    FileNotFoundError
        There is no such folder or file.
    """
    from graph_tools.store.reader import TableReader

    path = Path(path)
    tables = {table.name: table for table in find_tables(model_or_tables)}
    if not tables:
        what = f"{type(model_or_tables).__name__} has no tables yet"
        raise ValueError(f"load_tables: {what}, expected a model that has been called with keys, or tables")
    pairs = _pairs(tables, _sources(path, list(tables)), names, path)
    readers = []
    for table, source in pairs:
        reader = TableReader(source.file)
        _check(table, source, reader)
        reader.check()
        _check_finite(table, source, reader)
        counts = None if source.counts is None else TableReader(source.counts)
        if counts is not None:
            counts.check()
        readers.append((table, source, reader, counts))
    return [_load(*each, progress) for each in readers]


def _sources(path: Path, tables: list[str]) -> dict[str, _Source]:
    """Return the tables of a folder by name, or a file under the name of the only table."""
    if path.is_file():
        if len(tables) != 1:
            raise ValueError(f"{path}: one file for {len(tables)} tables, expected a folder, or one table")
        return {tables[0]: _Source(path.name, "", path)}
    listed = path / _LIST_FILE
    if not listed.is_file():
        raise FileNotFoundError(f"{listed}: does not exist, expected a folder that `graph-tools convert` wrote")
    try:
        data = json.loads(listed.read_text(encoding="utf-8"))
        schema = data["schema"]
        found = {}
        for one in data["tables"] if schema == _SCHEMA else ():
            counts = one["counts_sha256"]
            files = path / f"{one['sha256']}.emb", None if counts is None else path / f"{counts}.emb"
            found[str(one["name"])] = _Source(str(one["name"]), str(one["family"]), *files)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{listed}: {error!r}, expected the list of tables of `graph-tools convert`") from error
    if schema != _SCHEMA:
        raise ValueError(f"{listed}: schema {schema!r}, expected {_SCHEMA!r}")
    return found


def _pairs(
    tables: dict[str, Table], sources: dict[str, _Source], names: Mapping[str, str] | None, path: Path
) -> list[tuple[Table, _Source]]:
    pairs = []
    for table, name in (names or {table: table for table in tables}).items():
        if table not in tables:
            raise ValueError(f"load_tables: no table {table!r}, expected one of {sorted(tables)}")
        if name not in sources:
            what = "expected one of " + (", ".join(map(repr, sorted(sources))) or "none")
            hint = "" if names else "; names={table: name} chooses tables with other names"
            raise ValueError(f"{path}: no table {name!r} for table {table!r}, {what}{hint}")
        pairs.append((tables[table], sources[name]))
    return pairs


def _check(table: Table, source: _Source, reader: TableReader) -> None:
    header = reader.header
    if header.dim != table.dim:
        found = f"{source.name!r} has rows of {header.dim} numbers"
        raise ValueError(f"table {table.name!r}: {found}, expected {table.dim} ({source.file})")
    kind = "string" if header.index_kind == "string" else "int64"
    has = "string" if table.key_dtype == "string" else "int64"
    if kind != has:
        raise ValueError(f"table {table.name!r}: {source.name!r} has {kind} keys, expected {has} keys ({source.file})")


def _check_finite(table: Table, source: _Source, reader: TableReader) -> None:
    for begin in range(0, reader.header.rows, _BLOCK_ROWS):
        rows = reader.rows(np.arange(begin, min(begin + _BLOCK_ROWS, reader.header.rows)))
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            row = begin + int(np.argmin(finite))
            raise ValueError(f"table {table.name!r}: row {row} of {source.name!r} has NaN or infinity ({source.file})")


def _load(
    table: Table, source: _Source, reader: TableReader, counts: TableReader | None, progress: Progress | None
) -> LoadedTable:
    now, least = int(time.time()) - EPOCH_S, _admitting_count(table)
    done, total, occupied = 0, _total(reader), table.size() > 0
    for keys, weights in _blocks(reader):
        met = np.full(len(keys), least, np.int64)
        if counts is not None:
            met = np.maximum(counts.lookup(keys)[:, 0].astype(np.int64), least)
        meta = np.stack([np.full_like(met, now), met, np.full_like(met, FULL)], axis=1)
        if occupied:
            # A row that is written again would keep its slots.
            table.evict(keys)
        table.insert(keys, weights=weights, meta=meta)
        done += len(keys)
        if progress is not None:
            progress(table.name, done, total)
    return LoadedTable(table.name, source.name, source.family, done, counts is not None)


def _admitting_count(table: Table) -> int:
    """Return how often a key must have been met to have a row."""
    return int(getattr(table.settings.admission, "threshold", 1))


def _total(reader: TableReader) -> int:
    keys = reader.spec().keys
    return int(reader.header.rows if keys is None else keys.shape[0])


def _blocks(reader: TableReader) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Yield keys [n] and their rows [n, dim] float32."""
    spec, rows = reader.spec(), reader.header.rows
    if spec.keys is None:
        for begin in range(0, rows, _BLOCK_ROWS):
            numbers = np.arange(begin, min(begin + _BLOCK_ROWS, rows))
            yield numbers, reader.rows(numbers)
        return
    begin = 0
    for keys in spec.keys.chunks(_BLOCK_ROWS):
        if reader.header.index_kind == "string":
            numbers = np.arange(begin, begin + len(keys))
            begin += len(keys)
        else:
            numbers = reader.find(keys)
        yield keys, reader.rows(numbers)
