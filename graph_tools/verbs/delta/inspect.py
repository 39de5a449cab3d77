# SPDX-License-Identifier: Apache-2.0
"""Inspect segments and timelines, and compact and truncate timelines."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from graph_tools.errors import UnreadableError
from graph_tools.report.delta import (
    DeltaInspectReport,
    DeltaTruncateReport,
    DeltaWriteReport,
    SegmentInfo,
    TableChanges,
    VariableChange,
)
from graph_tools.store.compaction import compact
from graph_tools.store.delta import TableDelta
from graph_tools.store.segment import Segment
from graph_tools.store.segment_layout import UNKNOWN_TIME
from graph_tools.store.timeline import Position, TimelineReader, list_segments, list_terms
from graph_tools.store.truncation import truncate
from graph_tools.tensors import ArrayTensor, TensorSource, rows_per_chunk

_CHUNK_BYTES = 4 << 20


def inspect_delta(path: str | Path) -> DeltaInspectReport:
    """Read a segment, or a timeline up to its first fault, with all checks.

    Raises
    ------
    UnreadableError
        A segment is damaged, or a folder cannot be read; faults of timelines are in the report.
    """
    path = Path(path)
    if not path.is_dir():
        info = describe_segment(Segment(path))
        return DeltaInspectReport(str(path), info.lineage, info.last_epoch, [], [info])
    report = DeltaInspectReport(str(path), None, 0, list_terms(path))
    files = list_segments(path)
    try:
        if files:
            header = Segment(path / files[0].name).header
            report.lineage = header.lineage.hex()
            for segment in TimelineReader(path, Position(header.lineage, header.first_epoch - 1, header.previous)):
                report.segments.append(describe_segment(segment))
                report.epoch = segment.header.last_epoch
    except UnreadableError as error:
        report.fault = str(error)
    return report


def compact_timeline(path: str | Path, first: int | None = None, last: int | None = None) -> DeltaWriteReport:
    """Replace the segments from epoch `first` to epoch `last` by one; by default, all segments.

    Raises
    ------
    UnreadableError, UsageError, ConversionError
        As for `compact`.
    """
    begun = time.monotonic()
    found = compact(Path(path), first, last)
    return DeltaWriteReport(
        describe_segment(found.segment), [file.name for file in found.replaced], time.monotonic() - begun
    )


def truncate_timeline(path: str | Path, last: int | None = None) -> DeltaTruncateReport:
    """Withdraw the segments after epoch `last`, by default from the first fault on.

    Raises
    ------
    UnreadableError, UsageError, ConversionError
        As for `truncate`.
    """
    found = truncate(Path(path), last)
    return DeltaTruncateReport(str(path), found.epoch, found.term, [file.name for file in found.withdrawn])


def describe_segment(segment: Segment) -> SegmentInfo:
    """Return the description of a segment for reports."""
    header, delta = segment.header, segment.delta
    return SegmentInfo(
        file=segment.path.name,
        bytes=header.file_size,
        lineage=header.lineage.hex(),
        first_epoch=header.first_epoch,
        last_epoch=header.last_epoch,
        term=header.term,
        previous=header.previous.hex(),
        chain=segment.chain.hex(),
        event_time=None if header.event_time == UNKNOWN_TIME else header.event_time,
        write_time=header.write_time,
        tables=[
            TableChanges(
                name=table.name,
                key_kind=table.key_kind,
                dim=table.dim,
                changed=table.changed.shape[0],
                deleted=table.deleted.shape[0],
                default_rows=len(table.default_numbers),
                not_finite=_not_finite_rows(table.rows) + _not_finite_rows(_default_rows(table)),
            )
            for table in delta.tables
        ],
        variables=[
            VariableChange(name, list(tensor.shape), _not_finite(tensor)) for name, tensor in delta.variables.items()
        ],
        streams=delta.streams,
    )


def _default_rows(table: TableDelta) -> TensorSource:
    return ArrayTensor(np.empty((0, table.dim), np.float32) if table.default_rows is None else table.default_rows)


def _not_finite_rows(rows: TensorSource) -> int:
    blocks = rows.chunks(rows_per_chunk(rows, _CHUNK_BYTES))
    return sum(int(np.count_nonzero(~np.isfinite(block).all(axis=1))) for block in blocks)


def _not_finite(tensor: TensorSource) -> int:
    blocks = tensor.chunks(rows_per_chunk(tensor, _CHUNK_BYTES))
    return sum(int(np.count_nonzero(~np.isfinite(block))) for block in blocks)
