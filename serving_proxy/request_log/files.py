# SPDX-License-Identifier: Apache-2.0
"""Files with requests that hosts have logged: found, limited, and merged into one file.

Hosts write `hosts/<id>/requests/<model>/<microseconds>.tfrecord`: TFRecords of `tensorflow.serving.PredictionLog`.
TensorFlow Serving and this library use such files for warm-up, and `graph-tools verify` repeats their requests. The
merged file has the same format.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from serving_proxy.artifacts.warmups import warmup_name
from serving_proxy.errors import NotFoundError
from serving_proxy.system import files

# Largest number of records that TensorFlow Serving and the library read from a warm-up file.
MOST_RECORDS = 1000
# Largest size of a record without its framing, and of a merged file.
_MOST_RECORD_BYTES = 256 * 1024 * 1024
_HEADER, _FOOTER = 12, 4
MOST_BYTES = _MOST_RECORD_BYTES + _HEADER + _FOOTER
_SUFFIX = ".tfrecord"


@dataclass(frozen=True)
class LogFile:
    """A file of a host.

    Attributes
    ----------
    began : int [us since 1970]
        When its first request was written, according to its name.
    """

    path: Path
    host: str
    began: int
    bytes: int


@dataclass(frozen=True)
class Merged:
    """One file made from several.

    Attributes
    ----------
    records : int
        Number of records, which are the newest ones.
    damaged : tuple of Path
        Files that end within a record, because they are being written, or that contain something else; the records
        before that point were used.
    """

    path: Path
    records: int
    bytes: int
    damaged: tuple[Path, ...]


def log_files(state_dir: Path, model: str) -> list[LogFile]:
    """Return the files of a model on all hosts, the oldest first."""
    found = []
    for path in (state_dir / "hosts").glob(f"*/requests/{model}/*{_SUFFIX}"):
        if path.stem.isascii() and path.stem.isdecimal():
            with contextlib.suppress(OSError):
                found.append(LogFile(path, path.parts[-4], int(path.stem), path.stat().st_size))
    return sorted(found, key=lambda file: (file.began, file.host))


def frames(path: Path, broken: list[Path] | None = None, most_bytes: int = MOST_BYTES) -> Iterator[bytes]:
    """Yield the records of a file with their framing; stop at a record that is not complete, and add the path to
    `broken`.

    Records of more than `most_bytes` are left out, and not read.
    """
    from graph_tools.readers.tfrecord import masked_crc

    with path.open("rb") as file:
        while header := file.read(_HEADER):
            whole = len(header) == _HEADER and struct.unpack_from("<I", header, 8)[0] == masked_crc(header[:8])
            length = struct.unpack_from("<Q", header)[0] if whole else 0
            whole = whole and length <= _MOST_RECORD_BYTES
            if whole and _HEADER + length + _FOOTER > most_bytes:
                if file.seek(length + _FOOTER, os.SEEK_CUR) <= os.fstat(file.fileno()).st_size:
                    continue
                whole = False
            rest = file.read(length + _FOOTER) if whole else b""
            if len(rest) != length + _FOOTER or struct.unpack_from("<I", rest, length)[0] != masked_crc(rest[:length]):
                if broken is not None:
                    broken.append(path)
                return
            yield header + rest


def newest(found: Iterable[LogFile], most_records: int, most_bytes: int, broken: list[Path]) -> list[bytes]:
    """Return the newest records of several files with their framing, the oldest first.

    Parameters
    ----------
    found : iterable of LogFile
        The oldest first.
    most_records, most_bytes : int
        Records that are larger than all may be together are left out.
    broken : list of Path
        Files that end within a record are added here.
    """
    kept: deque[bytes] = deque()
    for file in reversed(list(found)):
        part: deque[bytes] = deque()
        room, size, is_cut = most_bytes - sum(map(len, kept)), 0, False
        with contextlib.suppress(FileNotFoundError):  # a host has removed it meanwhile
            for frame in frames(file.path, broken, most_bytes):
                part.append(frame)
                size += len(frame)
                while len(part) > most_records - len(kept) or size > room:
                    size -= len(part.popleft())
                    is_cut = True
        kept.extendleft(reversed(part))
        if is_cut:
            break
    return list(kept)


def write_merged(records: list[bytes], folder: Path, damaged: Iterable[Path] = ()) -> Merged:
    """Write records to one file, whose name is derived from its content.

    Raises
    ------
    NotFoundError
        There is no record.
    ExhaustedError
        The disk is full.
    """
    if not records:
        raise NotFoundError("request log: no request in it, expected a host that has written some")
    data = b"".join(records)
    path = folder / warmup_name(hashlib.sha256(data).hexdigest())
    folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    if path.exists():
        # Updated as if it had just been written, because it is about to be used.
        os.utime(path)
    else:
        files.replace(path, data, mode=0o640)
    return Merged(path, len(records), len(data), tuple(damaged))


def merge(found: Iterable[LogFile], folder: Path, most_records: int = MOST_RECORDS) -> Merged:
    """Write the newest records of several files to one file; raise the errors of `write_merged`."""
    broken: list[Path] = []
    return write_merged(newest(found, most_records, MOST_BYTES, broken), folder, broken)


def remove_excess(found: Iterable[LogFile], most_files: int) -> list[LogFile]:
    """Remove all but the newest files of each host, as a running host does itself; return the removed files."""
    by_host: dict[str, list[LogFile]] = {}
    for file in found:
        by_host.setdefault(file.host, []).append(file)
    return remove(file for group in by_host.values() for file in group[: max(0, len(group) - most_files)])


def remove(found: Iterable[LogFile]) -> list[LogFile]:
    """Remove files, and return those that existed."""
    gone = []
    for file in found:
        with contextlib.suppress(OSError):
            file.path.unlink()
            gone.append(file)
    return gone
