# SPDX-License-Identifier: Apache-2.0
"""Read tables that Monolith dumped: TFRecord shards `<prefix>-00000-of-00004` of `EntryDump` messages.

A set of shards contains one table (`MonolithHashTableSave`) or several (`MonolithMultiHashTableSave`). Shards of
several tables are snappy-compressed, and `<prefix>.meta-00000-of-00004` lists the number of records of each table, in
order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from graph_tools.errors import UnreadableError
from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.readers.byte_stream import check_folder, file_size
from graph_tools.readers.monolith_entry import BadEntryError, Entries, parse_entries, parse_metadata
from graph_tools.readers.shards import shard_sets
from graph_tools.readers.tfrecord import Records, record_batches, tfrecord_compression
from graph_tools.tensors import Array, StreamTensor, split_rows

ABSENT = Absent(None, "Monolith: a lookup gives zeros for a key that is not in the table")

_META = ".meta"
# Enough rows for NumPy to be fast; temporary arrays need a few times the bytes of a batch.
_ROWS_AT_ONCE = 16384


@dataclass(frozen=True)
class Dump:
    """The files of a dump, in order: shards of entries and, if the dump has several tables, their metadata."""

    shards: list[Path]
    metadata: list[Path]


@dataclass
class _Segment:
    """The records [start, stop) of a shard, all of one table; `other_bytes` counts bytes that serving does not need."""

    path: Path
    compression: str
    start: int
    stop: int
    dim: int = 0
    other_bytes: int = 0


def find_dumps(folder: Path) -> dict[str, Dump]:
    """Return the dumps of a folder by prefix, after checking that each is complete.

    Raises
    ------
    UnreadableError
        A shard or its metadata is missing.
    """
    check_folder(folder, "shards")
    # A dump that is still being written has other names until it is complete.
    sets = shard_sets(path for path in folder.iterdir() if "-tmp-" not in path.name)
    dumps = {}
    for prefix, shards in sets.items():
        if prefix.endswith(_META):
            if prefix.removesuffix(_META) not in sets:
                raise UnreadableError(
                    f"{folder / prefix}-*: metadata without shards, expected the shards with the entries"
                )
            continue
        metadata = sets.get(prefix + _META, [])
        if metadata and len(metadata) != len(shards):
            raise UnreadableError(f"{folder / prefix}: {len(metadata)} files of metadata, expected {len(shards)}")
        dumps[prefix] = Dump(shards, metadata)
    return dumps


def open_tables(name: str, dump: Dump, compression: str | None = None) -> dict[str, SparseTable]:
    """Open the tables of a dump, under their own names if it has metadata, else one table with the given name.

    Parameters
    ----------
    compression : str or None
        `none`, `gzip`, `zlib` or `snappy`; None: detected.

    Raises
    ------
    UnreadableError
        A record is damaged, has no row, or a row of another length; the metadata does not fit; a table is empty.
    """
    tables = {}
    for table, found in open_all(name, dump, compression).items():
        if found is None:
            raise UnreadableError(f"table {table}: no entries, expected at least one")
        tables[table] = found
    if not tables:
        raise UnreadableError(f"table {name}: no entries in {dump.shards[0].parent}, expected at least one")
    return tables


def open_all(name: str, dump: Dump, compression: str | None = None) -> dict[str, SparseTable | None]:
    """Open the tables of a dump like `open_tables`, but with None for tables without entries."""
    segments: dict[str, list[_Segment]] = defaultdict(list)
    for number, path in enumerate(dump.shards):
        file_size(path)
        counts = _metadata(dump.metadata[number]) if dump.metadata else None
        for table, segment in _scan(path, compression, name, counts):
            segments[table].append(segment)
    return {table: _table(table, found) for table, found in segments.items()}


def _table(name: str, segments: list[_Segment]) -> SparseTable | None:
    segments = [segment for segment in segments if segment.stop > segment.start]
    if not segments:
        return None
    dim = segments[0].dim
    for segment in segments:
        if segment.dim != dim:
            raise UnreadableError(
                f"{segment.path}: rows of {segment.dim} in table {name}, expected {dim} as in {segments[0].path.name}"
            )
    parts = []
    for segment in segments:
        count = segment.stop - segment.start
        keys = StreamTensor(np.dtype(np.int64), (count,), partial(_chunks, segment, lambda entries: entries.ids))
        rows = StreamTensor(
            np.dtype(np.float32), (count, dim), partial(_chunks, segment, lambda entries: entries.values)
        )
        parts.append(Part(keys, rows))
    dropped = sum(segment.other_bytes for segment in segments)
    return SparseTable(
        name=name,
        family="monolith",
        key_dtype=np.dtype(np.int64),
        dim=dim,
        dtype=np.dtype(np.float32),
        parts=parts,
        absent=ABSENT,
        dropped_tensors=[(f"{name}: opt, last_update_ts_sec", dropped, "optimizer state, times and message tags")],
    )


def _scan(
    path: Path, compression: str | None, name: str, counts: list[tuple[str, int]] | None
) -> Iterator[tuple[str, _Segment]]:
    """Read a shard once and check everything; yield its tables with the positions of their records."""
    compression = compression or tfrecord_compression(path)
    bounds: list[tuple[str, _Segment]] = []
    start = 0
    for table, count in counts or []:
        bounds.append((table, _Segment(path, compression, start, start + count)))
        start += count
    if counts is None:
        bounds.append((name, _Segment(path, compression, 0, 1 << 62)))

    total = current = 0
    for records in record_batches(path, compression, verify=True):
        total = records.first + len(records)
        while current < len(bounds):
            segment = bounds[current][1]
            for piece in _split_records(records.slice(segment.start, segment.stop)):
                entries = _parse(segment, piece)
                segment.dim = entries.values.shape[1]
                segment.other_bytes += entries.other_bytes
            if segment.stop >= total:
                break
            current += 1
    if counts is None:
        bounds[0][1].stop = total
    elif total != start:
        raise UnreadableError(f"{path}: {total} records, expected {start} as its metadata says")
    yield from bounds


def _chunks(segment: _Segment, column: Callable[[Entries], Array], rows: int) -> Iterator[Array]:
    """Read a segment again and yield its ids or values."""

    def arrays() -> Iterator[Array]:
        for records in record_batches(segment.path, segment.compression, verify=False):
            if records.first >= segment.stop:
                return
            for piece in _split_records(records.slice(segment.start, segment.stop)):
                yield column(_parse(segment, piece))

    return map(np.ascontiguousarray, split_rows(arrays(), rows))


def _split_records(records: Records) -> Iterator[Records]:
    for start in range(records.first, records.first + len(records), _ROWS_AT_ONCE):
        yield records.slice(start, start + _ROWS_AT_ONCE)


def _parse(segment: _Segment, records: Records) -> Entries:
    try:
        return parse_entries(records, segment.dim or None)
    except BadEntryError as error:
        raise UnreadableError(
            f"{segment.path}: record {error.number} has {error}, expected an id and a row of the table's length"
        ) from error


def _metadata(path: Path) -> list[tuple[str, int]]:
    """Return the tables of a shard and their numbers of records, in order."""
    counts = []
    for records in record_batches(path, tfrecord_compression(path), verify=True):
        for begin, length in zip(records.begin.tolist(), records.length.tolist(), strict=True):
            try:
                counts.append(parse_metadata(records.data[begin : begin + length]))
            except ValueError as error:
                raise UnreadableError(f"{path}: {error}, expected a table's name and its number of entries") from error
    if len({table for table, _ in counts}) != len(counts):
        raise UnreadableError(f"{path}: a table more than once, expected distinct names")
    return counts
