# SPDX-License-Identifier: Apache-2.0
"""Read TFRecord files as batches of records: one buffer, and the positions of the records in it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from graph_tools.errors import UnreadableError
from graph_tools.readers.byte_stream import byte_blocks, compression_of, file_size, read_head
from graph_tools.tensors import Array

_HEADER = 12  # uint64 length, uint32 masked crc32c of these eight bytes
_FOOTER = 4  # uint32 masked crc32c of the data
_SNAPPY_BLOCK_LIMIT = 1 << 24


@dataclass(frozen=True)
class Records:
    """Consecutive records of a file.

    Attributes
    ----------
    data : bytes
    begin, length : ndarray [n] int64
        Record i is `data[begin[i] : begin[i] + length[i]]`.
    first : int
        Number of record 0 within its file.
    """

    data: bytes
    begin: Array
    length: Array
    first: int

    def __len__(self) -> int:
        return len(self.begin)

    def slice(self, start: int, stop: int) -> Records:
        """Return the records whose numbers within the file are in [start, stop)."""
        low = min(max(start - self.first, 0), len(self))
        high = min(max(stop - self.first, low), len(self))
        return Records(self.data, self.begin[low:high], self.length[low:high], self.first + low)


def masked_crc(data: bytes) -> int:
    """Return the crc32c as TFRecord stores it: rotated and shifted, so that the crc of data with a crc is not weak."""
    crc = int(google_crc32c.value(data))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def tfrecord_compression(path: Path) -> str:
    """Return `none`, `gzip`, `zlib` or `snappy`, found from the first bytes of the file."""
    head = read_head(path, 16)
    if len(head) >= _HEADER and struct.unpack_from("<I", head, 8)[0] == masked_crc(head[:8]):
        return "none"
    compression = compression_of(head)
    # Snappy blocks begin with their stored length, big-endian, then their decompressed length (never zero).
    if compression == "none" and len(head) > 5:
        length = struct.unpack_from(">I", head)[0]
        if 0 < length < _SNAPPY_BLOCK_LIMIT and 4 + length <= file_size(path) and head[4]:
            return "snappy"
    return compression


def record_batches(path: Path, compression: str, verify: bool) -> Iterator[Records]:
    """Yield the records of a file in order, some megabytes at a time.

    Parameters
    ----------
    compression : str
        As `tfrecord_compression` returns it.
    verify : bool
        Check the checksum of each record's data. The checksums of the lengths are always checked.

    Raises
    ------
    UnreadableError
        A checksum is wrong, or the file ends within a record.
    """
    if compression == "snappy":
        yield from _snappy_batches(path)
        return
    rest = b""
    number = 0
    for block in byte_blocks(path, compression):
        data = rest + block if rest else block
        begin, length, end = _find_records(path, data, number)
        if len(begin):
            if verify:
                _check_data(path, data, begin, length, number)
            yield Records(data, begin, length, number)
            number += len(begin)
        rest = data[end:]
    if rest:
        raise UnreadableError(f"{path}: ends within record {number} ({len(rest)} bytes of it), expected complete data")


def _find_records(path: Path, data: bytes, first: int) -> tuple[Array, Array, int]:
    """Find the whole records of a buffer that begins with one: starts [n], lengths [n], bytes used."""
    view = np.frombuffer(data, np.uint8)
    begins: list[Array] = []
    lengths: list[Array] = []
    position = count = repeats = length = 0
    last = b""
    while position + _HEADER <= len(data):
        header = data[position : position + _HEADER]
        if header == last:
            repeats += 1
        else:
            length, crc = struct.unpack("<QI", header)
            if crc != masked_crc(header[:8]):
                raise UnreadableError(
                    f"{path}: record {first + count} has a length with a wrong checksum, expected a TFRecord"
                )
            last, repeats = header, 0
        stride = length + _HEADER + _FOOTER
        possible = (len(data) - position) // stride
        if possible == 0:
            break
        run = 1
        if repeats >= 4 and possible > 1:
            # If consecutive records have one length, their headers are equal and have a fixed distance.
            run = min(possible, 1 << min(repeats, 16))
            heads = sliding_window_view(view, _HEADER)[position : position + (run - 1) * stride + 1 : stride]
            same = (heads == np.frombuffer(header, np.uint8)).all(axis=1)
            run = run if same.all() else int(same.argmin())
        begins.append(position + _HEADER + np.arange(run, dtype=np.int64) * stride)
        lengths.append(np.full(run, length, np.int64))
        count += run
        position += run * stride
    if not begins:
        return np.empty(0, np.int64), np.empty(0, np.int64), position
    return np.concatenate(begins), np.concatenate(lengths), position


def _check_data(path: Path, data: bytes, begin: Array, length: Array, first: int) -> None:
    """Compare the checksums of the records' data."""
    ends = begin + length
    spans = zip(begin.tolist(), ends.tolist(), strict=True)
    crc = np.fromiter((google_crc32c.value(data[low:high]) for low, high in spans), np.uint32, len(begin))
    masked = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8)
    stored = sliding_window_view(np.frombuffer(data, np.uint8), _FOOTER)[ends].copy().view("<u4")[:, 0]
    wrong = np.flatnonzero(masked != stored)
    if len(wrong):
        raise UnreadableError(f"{path}: record {first + int(wrong[0])} has a wrong checksum, expected intact records")


def _snappy_batches(path: Path) -> Iterator[Records]:
    """Yield the records of a snappy-compressed file through TensorFlow, which decompresses it and checks the sums."""
    import tensorflow as tf

    number = 0
    try:
        dataset = tf.data.TFRecordDataset(str(path), compression_type="SNAPPY", buffer_size=1 << 20).batch(8192)
        for batch in dataset.as_numpy_iterator():
            records = batch.tolist()
            length = np.fromiter(map(len, records), np.int64, len(records))
            yield Records(b"".join(records), np.cumsum(length) - length, length, number)
            number += len(records)
    except tf.errors.OpError as error:
        raise UnreadableError(
            f"{path}: damaged near record {number} ({error.message}), expected snappy-compressed TFRecords"
        ) from error
