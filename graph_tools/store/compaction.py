# SPDX-License-Identifier: Apache-2.0
"""Replace the segments of consecutive epochs of a timeline by one with their last state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from graph_tools.errors import ConversionError, UnreadableError, UsageError, naming
from graph_tools.store.merging import merge_deltas
from graph_tools.store.segment import Segment
from graph_tools.store.table_file import sync_folder
from graph_tools.store.timeline import Position, choose_next, continue_from, list_segments
from graph_tools.store.timeline_writer import publish


@dataclass(frozen=True)
class Compacted:
    """A new segment, and the files that it replaced.

    Attributes
    ----------
    segment : Segment
    replaced : tuple of Path
    """

    segment: Segment
    replaced: tuple[Path, ...]


def compact(folder: Path, first: int | None = None, last: int | None = None) -> Compacted:
    """Compact the segments of a timeline from epoch `first` to epoch `last`; by default, all of them.

    The new segment is published before the old ones are deleted, so a reader always finds all epochs.

    Raises
    ------
    UnreadableError
        A segment is damaged or does not continue the one before.
    UsageError
        There are no two segments to compact, or a segment reaches beyond these epochs.
    ConversionError
        The disk is full, or the segments contradict each other.
    """
    segments = _continuous(folder, first, last)
    if len(segments) == 1:
        # An earlier compaction was stopped before it had deleted everything.
        return Compacted(segments[0], _remove_replaced(folder, segments[0]))
    headers = [segment.header for segment in segments]
    with naming(folder):
        delta = replace(merge_deltas([segment.delta for segment in segments]), chains=_chains(segments))
    header = replace(
        headers[-1], first_epoch=headers[0].first_epoch, previous=headers[0].previous, chain=segments[-1].chain
    )
    segment = publish(folder, header, delta)
    return Compacted(segment, _remove_replaced(folder, segment))


def _chains(segments: list[Segment]) -> tuple[bytes, ...]:
    """Return the chain hashes of all epochs of segments but the last; none if a segment does not list its own."""
    chains = [chain for segment in segments for chain in (*segment.delta.chains, segment.chain)]
    epochs = segments[-1].header.last_epoch - segments[0].header.first_epoch
    return tuple(chains[:-1]) if len(chains) == epochs + 1 else ()


def _inside(folder: Path, segment: Segment) -> tuple[Path, ...]:
    """Return the other segments whose epochs a segment has."""
    begin, end = segment.header.first_epoch, segment.header.last_epoch
    files = [file for file in list_segments(folder) if begin <= file.first and file.last <= end]
    return tuple(folder / file.name for file in files if (file.first, file.last) != (begin, end))


def _remove_replaced(folder: Path, segment: Segment) -> tuple[Path, ...]:
    replaced = _inside(folder, segment)
    try:
        for path in replaced:
            path.unlink(missing_ok=True)
        sync_folder(folder)
    except OSError as error:
        raise ConversionError(f"{error.filename}: {error.strerror}, expected permission to delete it") from error
    return replaced


def _continuous(folder: Path, first: int | None, last: int | None) -> list[Segment]:
    """Read the segments between two epochs, each of which continues the one before."""
    files = list_segments(folder)
    if not files:
        raise UnreadableError(f"{folder}: no segments, expected a timeline")
    begin = files[0].first if first is None else first
    end = max(file.last for file in files) if last is None else last
    if not any(file.first == begin for file in files):
        raise UsageError(f"--from {begin}: no segment of {folder} begins with this epoch, expected one")
    epoch, segments = begin - 1, list[Segment]()
    position: Position | None = None
    while epoch < end:
        file = choose_next(folder, files, epoch)
        if file is None or file.last > end:
            raise UsageError(f"--to {end}: no segment of {folder} ends with this epoch, expected one")
        segment = Segment(folder / file.name)
        header = segment.header
        position = continue_from(position or Position(header.lineage, epoch, header.previous), segment)
        segments.append(segment)
        epoch = file.last
    if not segments or (len(segments) == 1 and not _inside(folder, segments[0])):
        found = f"{len(segments)} segment from epoch {begin} to {end}"
        raise UsageError(f"{folder}: {found}, expected two or more to compact")
    return segments
