# SPDX-License-Identifier: Apache-2.0
"""Add segments to a timeline as its only writer."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.store.delta import Delta
from graph_tools.store.not_finite import find_not_finite
from graph_tools.store.segment import Segment
from graph_tools.store.segment_layout import UNKNOWN_TIME, SegmentHeader
from graph_tools.store.segment_writer import write_segment
from graph_tools.store.table_file import sync_folder
from graph_tools.store.timeline import (
    Position,
    choose_next,
    continue_from,
    list_segments,
    list_terms,
    segment_name,
    term_name,
)

# A hidden file that was not written for this long was left behind by a killed process.
_ABANDONED_SECONDS = 86_400
_HIDDEN = ".segment."
_NO_LINK = {errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}


class TimelineWriter:
    """Publishes segments after the last one of a timeline; each new writer stops the one before.

    Parameters
    ----------
    folder : Path
        It is created if needed.
    start : Position
        The position of the base, at which the timeline begins if it has no segments yet.
    about : str
        Text about the writer, for people.
    permit_not_finite : bool
        Publish NaN and infinities as well, which servers refuse.

    Attributes
    ----------
    position : Position
        The state after the last segment.
    term : int

    Raises
    ------
    UnreadableError
        The last segment is damaged, or a segment is missing or of another lineage.
    ConversionError
        The folder cannot be written to.
    """

    def __init__(self, folder: Path, start: Position, about: str = "", *, permit_not_finite: bool = False) -> None:
        self.folder = folder
        self._permit_not_finite = permit_not_finite
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(folder)
            self.term = begin_term(folder, _last_term(folder), about)
        except OSError as error:
            raise ConversionError(f"{folder}: {error.strerror}, expected a folder for a timeline") from error
        self.position = find_tip(folder, start)

    def publish(
        self,
        delta: Delta,
        *,
        event_time: int = UNKNOWN_TIME,
        write_time: int | None = None,
        before: Callable[[Segment], None] = lambda segment: None,
    ) -> Segment:
        """Publish the changes of the next epoch, and return the segment.

        Parameters
        ----------
        event_time : int [µs since 1970, UTC]
            The time of the newest sample that the trainer had seen.
        write_time : int, optional
            By default, the time now.
        before : callable
            Called with the complete segment before it is published.

        Raises
        ------
        UnreadableError
            The folder was removed or replaced.
        ConversionError
            Another writer has begun, the delta does not fit the format or has numbers that are not finite, or the disk
            is full.
        """
        self.check_present()
        now = time.time_ns() // 1000 if write_time is None else write_time
        epoch = self.position.epoch + 1
        header = SegmentHeader(self.position.lineage, epoch, epoch, self.term, self.position.chain, event_time, now)

        def check(segment: Segment) -> None:
            found = None if self._permit_not_finite else find_not_finite(segment.delta)
            if found is not None:
                raise ConversionError(f"{self.folder}: epoch {epoch}: {found}, expected a finite number")
            before(segment)
            self._check_term()

        segment = publish(self.folder, header, delta, check)
        self.position = continue_from(self.position, segment)
        return segment

    def resume(self) -> None:
        """Find out what is there after an error; the term stays.

        A segment may have got its name although the error came after. It is then the last one, and the next
        publication follows it.

        Raises
        ------
        UnreadableError
            The folder is not there or not the one of this writer, or does not continue what it has published.
        ConversionError
            Another writer has begun.
        """
        self.check_present()
        self._check_term()
        self.position = find_tip(self.folder, self.position)

    def check_present(self) -> None:
        """Check that the folder is still the one that has this writer's term.

        Raises
        ------
        UnreadableError
        """
        path = self.folder / term_name(self.term)
        if not path.exists():
            found = f"no {path.name}" if self.folder.exists() else "does not exist any more"
            raise UnreadableError(f"{self.folder}: {found}, expected the folder in which this writer began")

    def _check_term(self) -> None:
        greatest = max(list_terms(self.folder), default=0)
        if greatest > self.term:
            path = self.folder / term_name(greatest)
            raise ConversionError(f"{path}: a writer of term {greatest}, expected none after term {self.term}")


def begin_term(folder: Path, last: int, about: str) -> int:
    """Create the file of a term after `last` and all others, which stops earlier writers, and return the term.

    Raises
    ------
    OSError
    """
    term = max([last, *list_terms(folder)]) + 1
    while True:
        try:
            with (folder / term_name(term)).open("x", encoding="utf-8") as file:
                file.write(about)
        except FileExistsError:
            term += 1
            continue
        sync_folder(folder)
        return term


def _last_term(folder: Path) -> int:
    """Return the term of the last segment; 0 if there are none."""
    segments = list_segments(folder)
    if not segments:
        return 0
    try:
        return Segment(folder / segments[-1].name).header.term
    except UnreadableError as error:
        raise UnreadableError(f"{error}; `graph-tools delta truncate {folder}` withdraws faulty segments") from error


def publish(
    folder: Path, header: SegmentHeader, delta: Delta, check: Callable[[Segment], None] = lambda segment: None
) -> Segment:
    """Write a segment, read it back with all checks, and give it its name; `check` is called with it before that.

    Raises
    ------
    ConversionError
        The segment exists, the delta does not fit the format, or the disk is full.
    """
    final = folder / segment_name(header.first_epoch, header.last_epoch)
    hidden = folder / f"{_HIDDEN}{os.getpid()}.{secrets.token_hex(8)}"
    write_segment(hidden, header, delta)
    try:
        try:
            segment = Segment(hidden)
        except UnreadableError as error:
            raise ConversionError(f"{final}: {error}") from error
        check(segment)
        try:
            _link(hidden, final)
            sync_folder(folder)
        except FileExistsError as error:
            raise ConversionError(f"{final}: exists, expected that no other writer adds segments") from error
        except OSError as error:
            raise ConversionError(f"{final}: {error.strerror}, expected permission to write it") from error
    finally:
        hidden.unlink(missing_ok=True)
    segment.path = final
    return segment


def _link(hidden: Path, final: Path) -> None:
    try:
        final.hardlink_to(hidden)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        if final.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final)) from error
        hidden.rename(final)


def _remove_abandoned(folder: Path) -> None:
    for path in folder.glob(f"{_HIDDEN}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                path.unlink()


def find_tip(folder: Path, start: Position) -> Position:
    """Return the position after the last segment of a timeline, which is read; the others must only exist.

    Raises
    ------
    UnreadableError
        The last segment is damaged or of another lineage, a segment is missing, or the timeline ends before `start`.
    """
    files = list_segments(folder)
    epoch, last = start.epoch, None
    while (file := choose_next(folder, files, epoch)) is not None:
        epoch, last = file.last, file
    if last is None:
        last = next((file for file in reversed(files) if file.last == epoch), None)
        if last is None:
            if files:
                found = f"segments up to epoch {files[-1].last}"
                raise UnreadableError(f"{folder}: {found}, expected epoch {epoch}, that of the model")
            return start
    segment = Segment(folder / last.name)
    header = segment.header
    before = Position(start.lineage, header.first_epoch - 1, header.previous)
    tip = continue_from(before, segment)
    known = {start.epoch: start.chain}
    for at, chain in ((before.epoch, before.chain), (tip.epoch, tip.chain)):
        if known.get(at, chain) != chain:
            raise UnreadableError(
                f"{segment.path}: chain hash {chain.hex()} of epoch {at}, expected {start.chain.hex()}; another history"
            )
    return tip
