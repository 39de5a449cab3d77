# SPDX-License-Identifier: Apache-2.0
"""Withdraw the last segments of a timeline, so that other ones can be published in their place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from graph_tools.errors import ConversionError, UnreadableError, UsageError
from graph_tools.store.known_weights import read_weights, write_weights
from graph_tools.store.segment import Segment
from graph_tools.store.table_file import sync_folder
from graph_tools.store.timeline import Position, SegmentFile, TimelineReader, find_following, list_segments
from graph_tools.store.timeline_writer import begin_term

_SUFFIX = ".withdrawn"


@dataclass(frozen=True)
class Truncated:
    """The last epoch that stayed, and the files that were withdrawn.

    Attributes
    ----------
    epoch : int
    term : int
        The term that the truncation has taken.
    withdrawn : tuple of Path
        The files under their new names.
    """

    epoch: int
    term: int
    withdrawn: tuple[Path, ...]


def truncate(folder: Path, last: int | None = None) -> Truncated:
    """Withdraw the segments after epoch `last`, by default from the first fault on.

    They are renamed, the newest first, after a new term has stopped the present writer.

    Raises
    ------
    UnreadableError
        There are no segments.
    UsageError
        No segment ends with this epoch; or it is not given, and there is no fault.
    ConversionError
        The folder cannot be written to.
    """
    files = list_segments(folder)
    if not files:
        raise UnreadableError(f"{folder}: no segments, expected a timeline")
    end = _before_the_fault(folder, files) if last is None else last
    kept = [file for file in files if file.last <= end]
    gone = [file for file in files if file.last > end]
    if not gone or not _reaches(kept, files[0].first - 1, end):
        expected = f"one of {files[0].first - 1} to {files[-1].last - 1} with which a segment ends"
        raise UsageError(f"--to {end}: no epoch of {folder} that others follow, expected {expected}")
    try:
        term = begin_term(folder, _term_of(folder, kept), f"graph-tools delta truncate --to {end}\n")
        withdrawn = tuple(_withdraw(folder / file.name, term) for file in reversed(gone))
        sync_folder(folder)
        states = read_weights(folder)
        if any(state.epoch > end for state in states):
            write_weights(folder, [state for state in states if state.epoch <= end])
    except OSError as error:
        place = error.filename or folder
        raise ConversionError(f"{place}: {error.strerror}, expected permission to write it") from error
    return Truncated(end, term, withdrawn)


def _before_the_fault(folder: Path, files: list[SegmentFile]) -> int:
    """Return the epoch before the first fault of a timeline."""
    epoch = files[0].first - 1
    try:
        header = Segment(folder / files[0].name).header
        for segment in TimelineReader(folder, Position(header.lineage, epoch, header.previous)):
            epoch = segment.header.last_epoch
    except UnreadableError:
        return epoch
    raise UsageError(f"{folder}: no fault up to epoch {epoch}, expected --to EPOCH")


def _reaches(files: list[SegmentFile], epoch: int, end: int) -> bool:
    """Return whether segments lead from one epoch to another."""
    while epoch < end and (file := find_following(files, epoch)) is not None:
        epoch = file.last
    return epoch == end


def _term_of(folder: Path, files: list[SegmentFile]) -> int:
    return Segment(folder / files[-1].name).header.term if files else 0


def _withdraw(path: Path, term: int) -> Path:
    return path.rename(path.with_name(f"{path.name}{_SUFFIX}-{term}"))
