# SPDX-License-Identifier: Apache-2.0
"""Read a timeline: the segments of one lineage in a folder, each of which continues the one before."""

from __future__ import annotations

import bisect
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from graph_tools.errors import UnreadableError
from graph_tools.store.segment import Segment
from graph_tools.store.segment_layout import GREATEST

SUFFIX = ".delta"
_DIGITS = 16
_SEGMENT = re.compile(rf"([0-9]{{{_DIGITS}}})-([0-9]{{{_DIGITS}}})\.delta")
_TERM = re.compile(rf"term-([0-9]{{{_DIGITS}}})")


def first_chain(lineage: bytes) -> bytes:
    """Return the chain hash [32] of epoch 0 of a lineage [16]."""
    return hashlib.sha256(lineage).digest()


def segment_name(first: int, last: int) -> str:
    """Return the name of a segment with the changes of these epochs."""
    return f"{first:0{_DIGITS}}-{last:0{_DIGITS}}{SUFFIX}"


def term_name(term: int) -> str:
    """Return the name of the file of a writer."""
    return f"term-{term:0{_DIGITS}}"


@dataclass(frozen=True, order=True)
class SegmentFile:
    """A segment in the list of a folder, as its name describes it."""

    first: int
    last: int

    @property
    def name(self) -> str:
        return segment_name(self.first, self.last)


@dataclass(frozen=True)
class Position:
    """A state of a model in a timeline.

    Attributes
    ----------
    lineage : bytes [16]
    epoch : int
    chain : bytes [32]
    term : int
        That of the segment with the epoch; 0 at the export.
    """

    lineage: bytes
    epoch: int
    chain: bytes
    term: int = 0

    @classmethod
    def start(cls, lineage: bytes) -> Position:
        """Return the position of the export with which a lineage begins."""
        return cls(lineage, 0, first_chain(lineage))


def list_segments(folder: Path) -> list[SegmentFile]:
    """Return the segments of a folder by their names, in ascending order.

    Raises
    ------
    UnreadableError
        The folder cannot be read.
    """
    return sorted(SegmentFile(int(found[1]), int(found[2])) for found in _matches(folder, _SEGMENT))


def list_terms(folder: Path) -> list[int]:
    """Return the terms for which a folder has files, in ascending order; errors are those of `list_segments`."""
    return sorted(int(found[1]) for found in _matches(folder, _TERM))


def _matches(folder: Path, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError as error:
        raise UnreadableError(f"{folder}: {error.strerror}, expected the folder of a timeline") from error
    return (found for found in map(pattern.fullmatch, names) if found is not None)


class TimelineReader:
    """Reads the segments that follow a position, one at a time.

    Attributes
    ----------
    folder : Path
    position : Position
        The state after the last segment that was read.
    """

    def __init__(self, folder: Path, position: Position) -> None:
        self.folder, self.position = folder, position
        self._files: list[SegmentFile] = []

    def __iter__(self) -> Iterator[Segment]:
        while (segment := self.next()) is not None:
            yield segment

    def next(self) -> Segment | None:
        """Read the segment that follows the position, and move the position behind it; None at the end.

        Raises
        ------
        UnreadableError
            The segment is damaged or does not continue the timeline; the position stays.
        """
        while True:
            file = find_following(self._files, self.position.epoch)
            if file is None:
                self._files = list_segments(self.folder)
                file = find_across(self._files, self.position.epoch)
                file = file or choose_next(self.folder, self._files, self.position.epoch)
            if file is None:
                return None
            path = self.folder / file.name
            try:
                segment = Segment(path)
            except UnreadableError as error:
                # A compaction may have deleted the file after the folder was listed.
                if isinstance(error.__cause__, FileNotFoundError):
                    self._files = []
                    continue
                raise
            self.position = continue_from(self.position, segment)
            return segment


def find_following(files: list[SegmentFile], epoch: int) -> SegmentFile | None:
    """Return the segment of an ascending list that begins after an epoch and has the greatest last epoch, or None."""
    place = bisect.bisect_right(files, SegmentFile(epoch + 1, GREATEST))
    return files[place - 1] if place and files[place - 1].first == epoch + 1 else None


def find_across(files: list[SegmentFile], epoch: int) -> SegmentFile | None:
    """Return the last segment of a list that begins after an epoch or before, and ends after it; None without one."""
    return max((file for file in files if file.first <= epoch + 1 and file.last > epoch), default=None)


def choose_next(folder: Path, files: list[SegmentFile], epoch: int) -> SegmentFile | None:
    """Return the segment that begins after an epoch and has the greatest last epoch; None if none ends after it.

    Raises
    ------
    UnreadableError
        Segments end after the epoch, but none begins with the next one.
    """
    following = find_following(files, epoch)
    if following is not None:
        return following
    later = [file for file in files if file.last > epoch]
    if not later:
        return None
    path = folder / later[0].name
    if later[0].first > epoch:
        raise UnreadableError(f"{path}: epoch {later[0].first} after epoch {epoch}, expected epoch {epoch + 1}; a gap")
    found = f"epochs {later[0].first} to {later[0].last} after epoch {epoch}"
    raise UnreadableError(f"{path}: {found}, expected a segment that begins with epoch {epoch + 1}; out of order")


def continue_from(position: Position, segment: Segment) -> Position:
    """Return the position after a segment that follows another position.

    Raises
    ------
    UnreadableError
        The segment has other epochs than its name says, does not have the next one, belongs to another lineage or
        history, or has been written by an earlier writer.
    """
    header = segment.header
    if segment.path.name != segment_name(header.first_epoch, header.last_epoch):
        found = f"epochs {header.first_epoch} to {header.last_epoch}"
        raise UnreadableError(f"{segment.path}: {found}, expected those of its name; out of order")
    if header.lineage != position.lineage:
        raise UnreadableError(
            f"{segment.path}: lineage {header.lineage.hex()}, expected {position.lineage.hex()}; another lineage"
        )
    before = _chain_before(segment, position.epoch)
    if before is None:
        found = f"epochs {header.first_epoch} to {header.last_epoch} after epoch {position.epoch}"
        expected = f"a segment that begins with epoch {position.epoch + 1}; out of order"
        raise UnreadableError(f"{segment.path}: {found}, expected {expected}")
    if before != position.chain:
        expected = f"{position.chain.hex()}, the chain hash of epoch {position.epoch}; another history"
        raise UnreadableError(f"{segment.path}: follows {before.hex()}, expected {expected}")
    if header.term < position.term:
        raise UnreadableError(f"{segment.path}: term {header.term}, expected {position.term} or more; a second writer")
    return replace(position, epoch=header.last_epoch, chain=segment.chain, term=header.term)


def _chain_before(segment: Segment, epoch: int) -> bytes | None:
    """Return what a segment says is the chain hash of an epoch from which it continues, or None if it does not."""
    first, chains = segment.header.first_epoch, segment.delta.chains
    if epoch + 1 == first:
        return segment.header.previous
    return chains[epoch - first] if 0 <= epoch - first < len(chains) else None
