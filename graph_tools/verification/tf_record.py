# SPDX-License-Identifier: Apache-2.0
"""The framing of TFRecord files: length, checksum of the length, bytes, checksum of the bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import google_crc32c

from graph_tools.errors import UnreadableError

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")


def masked_crc(data: bytes) -> int:
    """Return the checksum that TFRecord stores: CRC-32C, rotated by 15 bits, plus a constant."""
    crc = int(google_crc32c.value(data))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def is_tf_record(data: bytes) -> bool:
    """Say whether the first bytes of a file are the head of a record."""
    if len(data) < _HEADER.size:
        return False
    _, crc = _HEADER.unpack(data[: _HEADER.size])
    return bool(crc == masked_crc(data[:8]))


def read_records(path: Path) -> Iterator[bytes]:
    """Yield the records of an uncompressed TFRecord file.

    Raises
    ------
    UnreadableError
        The file ends within a record, or a checksum is wrong.
    """
    with path.open("rb") as file:
        number = 0
        while head := file.read(_HEADER.size):
            if not is_tf_record(head):
                raise UnreadableError(f"{path}: record {number} with a damaged head, expected a TFRecord file")
            length = _HEADER.unpack(head)[0]
            data, foot = file.read(length), file.read(_FOOTER.size)
            if len(data) < length or len(foot) < _FOOTER.size:
                raise UnreadableError(f"{path}: ends within record {number}, expected {length} bytes and a checksum")
            if _FOOTER.unpack(foot)[0] != masked_crc(data):
                raise UnreadableError(f"{path}: record {number} with a wrong checksum, expected it undamaged")
            yield data
            number += 1
