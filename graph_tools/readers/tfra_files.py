# SPDX-License-Identifier: Apache-2.0
"""Read tables of TFRA's FileSystemSaver: raw files `<name>_mht_1of2_rank0_size1-keys` and `...-values`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.errors import UnreadableError
from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.readers.byte_stream import RawFileTensor, check_folder, file_size
from graph_tools.tables.checks import check_shapes, same_key_set

FOLDER = "TFRADynamicEmbedding"

_FILE = re.compile(
    r"^(?P<name>.+)_mht_(?P<shard>\d+)of(?P<shards>\d+)(?:_rank(?P<rank>\d+)_size(?P<size>\d+))?-(?P<kind>keys|values)$"
)

NO_DEFAULT = Absent(
    None, "TFRA: the files hold no default (the graph's default_value input does); none was given, so zeros"
)


@dataclass(frozen=True)
class Layout:
    """How a table is distributed over processes, and over the devices of each."""

    shards: int
    size: int
    ranked: bool

    def file(self, folder: Path, name: str, shard: int, rank: int, kind: str) -> Path:
        """Return the path of a file; shards count from 1, ranks from 0."""
        process = f"_rank{rank}_size{self.size}" if self.ranked else ""
        return folder / f"{name}_mht_{shard}of{self.shards}{process}-{kind}"


def find_tables(folder: Path) -> dict[str, Layout]:
    """Return the tables of a folder (`variables/TFRADynamicEmbedding` of a SavedModel), if all are complete.

    Optimizer slots are separate tables here, named after the variable and the slot.

    Raises
    ------
    UnreadableError
        A file is missing, or a table has files of two different distributions.
    """
    found: dict[str, set[Layout]] = defaultdict(set)
    check_folder(folder, "tables")
    for path in sorted(folder.iterdir()):
        match = _FILE.match(path.name)
        if match:
            ranked = match["rank"] is not None
            found[match["name"]].add(Layout(int(match["shards"]), int(match["size"] or 1), ranked))
    for name, layouts in found.items():
        if len(layouts) > 1:
            ways = " and ".join(f"{each.shards} shards x {each.size} processes" for each in sorted(layouts, key=repr))
            raise UnreadableError(f"{folder}: table {name} exists as {ways}, expected one of them")
        for path in _files(folder, name, next(iter(layouts))):
            if not path.is_file():
                raise UnreadableError(f"{path}: does not exist, expected all files of table {name}")
    return {name: next(iter(layouts)) for name, layouts in sorted(found.items())}


def _files(folder: Path, name: str, layout: Layout) -> Iterable[Path]:
    for rank in range(layout.size):
        for shard in range(1, layout.shards + 1):
            for kind in ("keys", "values"):
                yield layout.file(folder, name, shard, rank, kind)


def open_table(
    folder: Path,
    name: str,
    *,
    dim: int | None = None,
    key_dtype: np.dtype[Any] | None = None,
    value_dtype: np.dtype[Any] | None = None,
    absent: Absent = NO_DEFAULT,
    slots: Iterable[str] = (),
) -> SparseTable:
    """Open a table of a folder.

    Parameters
    ----------
    dim : int or None
        Length of a row; None: computed from the sizes of the files.
    key_dtype, value_dtype : numpy dtype or None
        Dtypes of the table's op; None: int64 and float32. The files do not contain them.
    absent : Absent
        Value of the graph's `default_value`.
    slots : names of tables
        Optimizer slots of this table. They must have the same keys, and are reported as dropped.
    """
    tables = find_tables(folder)
    if name not in tables:
        raise UnreadableError(f"{folder}: no table {name}, expected one of: {', '.join(tables) or 'none'}")
    keys, rows = np.dtype(key_dtype or "<i8"), np.dtype(value_dtype or "<f4")
    if keys.kind not in "iu":
        raise UnreadableError(f"{folder}: table {name} has keys of type {keys}, expected integers in raw files")
    layout = tables[name]
    found = _dim(folder, name, layout, keys, rows, dim)
    table = SparseTable(name, "tfra", keys, found, rows, _parts(folder, name, layout, keys, rows, found), absent)
    check_shapes(table)
    for slot in slots:
        table.dropped_tensors.append((slot, _slot_bytes(folder, table, slot, tables), "optimizer slot"))
    return table


def _parts(folder: Path, name: str, layout: Layout, keys: np.dtype[Any], rows: np.dtype[Any], dim: int) -> list[Part]:
    parts = []
    paths = iter(_files(folder, name, layout))
    for key_path, row_path in zip(paths, paths, strict=True):
        part = Part(RawFileTensor(key_path, keys), RawFileTensor(row_path, rows, (dim,)))
        if part.keys.shape[0] != part.rows.shape[0]:
            raise UnreadableError(
                f"{row_path}: {part.rows.shape[0]} rows of {dim}, expected {part.keys.shape[0]} as in {key_path.name}"
            )
        parts.append(part)
    return parts


def _dim(folder: Path, name: str, layout: Layout, keys: np.dtype[Any], rows: np.dtype[Any], dim: int | None) -> int:
    """Return the length of a row, from the first shard that has keys."""
    paths = iter(_files(folder, name, layout))
    for key_path, row_path in zip(paths, paths, strict=True):
        count, left = divmod(file_size(key_path), keys.itemsize)
        if left:
            raise UnreadableError(f"{key_path}: {file_size(key_path)} bytes, expected a multiple of {keys.itemsize}")
        if not count:
            continue
        found, rest = divmod(file_size(row_path), count * rows.itemsize)
        if rest or not found or (dim is not None and found != dim):
            expected = f"{dim} values" if dim else "as many values"
            raise UnreadableError(
                f"{row_path}: {file_size(row_path)} bytes for {count} keys, expected {expected} of {rows} for each"
            )
        return found
    raise UnreadableError(f"{folder}: table {name} has no keys, expected at least one")


def _slot_bytes(folder: Path, table: SparseTable, slot: str, tables: dict[str, Layout]) -> int:
    """Return the bytes of an optimizer slot, after checking that it belongs to the table."""
    if slot not in tables:
        raise UnreadableError(f"{folder}: no slot {slot}, expected one of: {', '.join(tables)}")
    paths = list(_files(folder, slot, tables[slot]))
    keys = [RawFileTensor(path, table.key_dtype) for path in paths[::2]]
    if not same_key_set([part.keys for part in table.parts], keys):
        raise UnreadableError(f"{folder}: slot {slot} has other keys than table {table.name}, expected the same keys")
    return sum(file_size(path) for path in paths)
