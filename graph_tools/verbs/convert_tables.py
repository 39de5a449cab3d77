# SPDX-License-Identifier: Apache-2.0
"""Convert the sparse tables of a training system to table files, with which another one can begin (warm start)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from graph_tools.errors import UsageError, naming
from graph_tools.json_data import write_json
from graph_tools.model.tables import SparseTable
from graph_tools.progress import Progress, Silent
from graph_tools.readers.table_folders import read_tables
from graph_tools.report.convert import LIST_FILE, ConvertedTable, ConvertReport
from graph_tools.store.spec import TableSpec
from graph_tools.store.table_file import MEMORY_LIMIT, write_table
from graph_tools.tables.analysis import is_in
from graph_tools.tables.blocks import Block, TableRows, of_sparse_table
from graph_tools.tables.checks import check_distinct, check_shapes, scan_values
from graph_tools.tensors import Array, StreamTensor, split_rows
from graph_tools.verbs.staging import check_place, staged

# Integers up to this are exact in fp32.
_MOST_COUNTED = 1 << 24


def convert(
    source: str | Path,
    target: str | Path,
    *,
    checkpoint: str | Path | None = None,
    tables: Sequence[str] = (),
    memory_limit: int = MEMORY_LIMIT,
    progress: Progress | None = None,
) -> ConvertReport:
    """Write the sparse tables of an export, or of a folder of table files, as files of docs/table_format.md.

    Rows are converted to fp32. Of the state of optimizers nothing is kept, and of frequencies what the export has.

    Parameters
    ----------
    source : path
        As for `readers.table_folders.read_tables`.
    target : path
        The folder to write, which must not exist: a file for each table, and `tables.json`, which is the report.
    checkpoint : path, optional
        Prefix of a checkpoint with the weights, or the folder with the table files of a training system.
    tables : sequence of str
        Names or patterns of tables to convert; all of them if empty.
    memory_limit : int [bytes]
    progress : Progress, optional

    Raises
    ------
    UnreadableError
        A file is missing or damaged, a key occurs twice, or a value is not finite.
    UsageError
        `target` exists, or a name fits no table.
    ConversionError
        A table does not fit the format, or the disk is full.
    """
    source, target = Path(source), Path(target)
    steps = progress or Silent()
    check_place(target, source)
    steps.begin(f"Reading {source}")
    with naming(source):
        found = _chosen(read_tables(source, None if checkpoint is None else Path(checkpoint)), tables)
        with staged(target) as folder:
            folder.mkdir()
            written = [_convert(table, folder, memory_limit, steps) for table in found]
            report = ConvertReport(str(source), str(target), written)
            write_json(report.to_json(), folder / LIST_FILE)
    return report


def _chosen(found: dict[str, SparseTable], wanted: Sequence[str]) -> list[SparseTable]:
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in found):
            raise UsageError(f"--table {pattern}: fits no table, expected one of {', '.join(sorted(found))}")
    chosen = [name for name in sorted(found) if not wanted or any(fnmatchcase(name, each) for each in wanted)]
    return [found[name] for name in chosen]


def _convert(table: SparseTable, folder: Path, memory_limit: int, steps: Progress) -> ConvertedTable:
    steps.begin(f"Checking {table.name}")
    check_shapes(table, may_be_empty=True)
    check_distinct(table, memory_limit // 8)
    scan_values(table)
    kept = _Kept(of_sparse_table(table))
    steps.begin(f"Writing {table.name}", kept.count * (4 * table.dim + 8), "bytes")
    rows = kept.tensor(np.float32, (table.dim,), lambda block: block.rows)
    with naming(f"table {table.name}"):
        file = write_table(
            folder, TableSpec(table.dim, rows, keys=kept.keys()), memory_limit=memory_limit, progress=steps.advance
        )
        counts = None
        if kept.source.has_frequencies and kept.count:
            spec = TableSpec(1, kept.tensor(np.float32, (1,), _counts), keys=kept.keys())
            counts = write_table(folder, spec, memory_limit=memory_limit).sha256
    return ConvertedTable(
        name=table.name,
        family=table.family,
        key="string" if kept.source.string_keys else "int64",
        dim=table.dim,
        rows=kept.count,
        ignored=kept.source.count - kept.count,
        sha256=file.sha256,
        bytes=file.size,
        counts_sha256=counts,
    )


def _counts(block: Block) -> Array | None:
    if block.frequencies is None:
        return None
    return np.clip(block.frequencies.astype(np.float64), 0, _MOST_COUNTED - 1).round()[:, None]


class _Kept:
    """The rows of a table that its training system serves, as tensors in one order."""

    def __init__(self, source: TableRows) -> None:
        self.source = source
        self.count = source.count
        if any(ignored is not None for ignored in source.ignored):
            self.count = sum(int(np.count_nonzero(self._mask(block))) for block in source.blocks(rows=False))

    def _mask(self, block: Block) -> Array:
        ignored = self.source.ignored[block.part]
        assert block.keys is not None
        return np.ones(len(block), bool) if ignored is None else ~is_in(block.keys, ignored)

    def keys(self) -> StreamTensor:
        dtype = object if self.source.string_keys else np.int64
        return self.tensor(dtype, (), lambda block: block.keys)

    def tensor(self, dtype: type, shape: tuple[int, ...], pick: Callable[[Block], Array | None]) -> StreamTensor:
        """Return what `pick` takes of each block, [count, *shape] of `dtype`."""

        def pieces() -> Iterator[Array]:
            for block in self.source.blocks(frequencies=self.source.has_frequencies):
                values = pick(block)
                assert values is not None
                yield values[self._mask(block)].astype(dtype, copy=False)

        return StreamTensor(np.dtype(dtype), (self.count, *shape), lambda rows: split_rows(pieces(), rows))
