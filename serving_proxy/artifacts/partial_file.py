# SPDX-License-Identifier: Apache-2.0
"""A file that is fetched in parts, and a journal of the parts that are there; both survive a break.

The journal is not synced: after a loss of power it may name parts that are not on the disk. So each part is compared
with its checksum before it counts.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import google_crc32c

from serving_proxy.artifacts.manifest import PART_BYTES
from serving_proxy.artifacts.store import Data
from serving_proxy.errors import ExhaustedError

_RECORD = struct.Struct("<QII")
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_LIBC = ctypes.CDLL(None)
# Flag of sync_file_range: begin to write to the disk, and do not wait.
_BEGIN_WRITING = 2
# Bytes that are looked at together. Memory for this size is used again; that for a whole part is new each time, and its
# page faults cost more than a hash.
_PIECE_BYTES = 64 * 1024


class PartialFile:
    """The parts of one file; `write` may be called by several threads.

    Parameters
    ----------
    path : Path
        Where the bytes are collected; the journal is beside it.
    size : int [byte]
    expected : tuple of int
        CRC-32C of each part; empty: not known.
    """

    def __init__(self, path: Path, size: int, expected: tuple[int, ...]) -> None:
        self.path = path
        self.size = size
        self.count = -(-size // PART_BYTES)
        self.done: set[int] = set()
        self._expected = expected
        self._lock = threading.Lock()
        self._journal_path = path.with_name(f"{path.name}.parts")
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(self._file, size)
            self._journal = os.open(self._journal_path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            os.close(self._file)
            raise full_disk(path, error) from error
        self._restore()

    def length(self, part: int) -> int:
        """Return the size of a part [byte]."""
        return min(PART_BYTES, self.size - part * PART_BYTES)

    def is_right(self, part: int, data: Data) -> bool:
        """Return whether bytes have the length and the checksum of a part."""
        return len(data) == self.length(part) and (not self._expected or checksum_of(data) == self._expected[part])

    def write(self, part: int, data: Data) -> None:
        """Write a part, and record it; the disk begins to store it beside the fetching of further parts.

        Raises
        ------
        ExhaustedError
            The disk is full.
        """
        checksum = self._expected[part] if self._expected else checksum_of(data)
        try:
            _write_at(self._file, data, part * PART_BYTES)
            self._begin_writing(part * PART_BYTES, len(data))
            with self._lock:
                os.write(self._journal, _RECORD.pack(part, checksum, ~checksum & 0xFFFFFFFF))
                self.done.add(part)
        except OSError as error:
            raise full_disk(self.path, error) from error

    def pieces(self, part: int) -> Iterator[bytes]:
        """Read a part that is there, piece by piece."""
        offset, left = part * PART_BYTES, self.length(part)
        while left > 0 and (piece := os.pread(self._file, min(left, _PIECE_BYTES), offset)):
            yield piece
            offset, left = offset + len(piece), left - len(piece)

    def finish(self, target: Path) -> None:
        """Sync the file and move it to its place, with a mode that protects it from being written to."""
        try:
            os.fchmod(self._file, 0o444)
            os.fsync(self._file)
            os.rename(self.path, target)
        except OSError as error:
            raise full_disk(self.path, error) from error
        self._journal_path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Delete what is there."""
        self.path.unlink(missing_ok=True)
        self._journal_path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files; what is there stays."""
        os.close(self._file)
        os.close(self._journal)

    def _begin_writing(self, offset: int, length: int) -> None:
        """Let the disk begin, so that little is left for the sync at the end; errors are those of the sync."""
        with contextlib.suppress(AttributeError):
            _LIBC.sync_file_range(self._file, ctypes.c_int64(offset), ctypes.c_int64(length), _BEGIN_WRITING)

    def _restore(self) -> None:
        """Take over the parts that an earlier process has fetched, if they are as they were received."""
        data = b""
        with contextlib.suppress(OSError):
            data = os.pread(self._journal, _RECORD.size * (4 * self.count + 1), 0)
        usable = len(data) - len(data) % _RECORD.size
        for part, checksum, inverse in _RECORD.iter_unpack(data[:usable]):
            if part >= self.count or checksum != ~inverse & 0xFFFFFFFF or part in self.done:
                continue
            if self._expected and checksum != self._expected[part]:
                continue
            if _checksum(self.pieces(part)) == checksum:
                self.done.add(part)
        if usable != len(data) or usable > _RECORD.size * self.count:
            # A record that was cut off would shift all that follow.
            os.ftruncate(self._journal, 0)
            for part in self.done:
                checksum = _checksum(self.pieces(part))
                os.write(self._journal, _RECORD.pack(part, checksum, ~checksum & 0xFFFFFFFF))


def full_disk(path: Path, error: OSError) -> ExhaustedError | OSError:
    """Return the error for a full disk; other errors unchanged."""
    if error.errno in _FULL:
        return ExhaustedError(f"{path}: {error.strerror}, expected room for the files of a model")
    return error


def checksum_of(data: Data) -> int:
    """Return the CRC-32C of bytes."""
    view = memoryview(data)
    return _checksum(bytes(view[at : at + _PIECE_BYTES]) for at in range(0, len(view), _PIECE_BYTES))


def _checksum(pieces: Iterable[bytes]) -> int:
    found = 0
    for piece in pieces:
        found = google_crc32c.extend(found, piece)
    return found


def _write_at(file: int, data: Data, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
