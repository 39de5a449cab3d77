# SPDX-License-Identifier: Apache-2.0
"""Parse the protobuf message of a row of a Monolith table, id and `num`, from the wire, many messages at a time.

EntryDump: sfixed64 id = 1; repeated float num = 2; OptimizerDump opt = 3; int64 last_update_ts_sec = 4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from graph_tools.bundle import varints
from graph_tools.readers.tfrecord import Records
from graph_tools.tensors import Array

_ID_TAG = 0x09  # field 1, 64 bits
_NUM_TAG = 0x15  # field 2, 32 bits: proto2 stores each float with its own tag
_PACKED_TAG = 0x12  # field 2, length-delimited: one tag for all floats
_OPTIMIZER_TAG = 0x1A  # field 3, length-delimited
_TIME_TAG = 0x20  # field 4, a number
_ID_BYTES = 9


class BadEntryError(ValueError):
    """A message that is not a row; `number` counts from the first record of its file."""

    def __init__(self, number: int, found: str) -> None:
        super().__init__(found)
        self.number = number


@dataclass(frozen=True)
class Entries:
    """Rows: ids [n] int64, values [n, dim] float32, and the number of other bytes in the messages."""

    ids: Array
    values: Array
    other_bytes: int


def parse_entry(message: bytes) -> tuple[int | None, Array]:
    """Parse one message with its fields in any order: id and `num` [dim] float32.

    Raises
    ------
    ValueError
        The bytes are not such a message.
    """
    key: int | None = None
    values: list[bytes] = []
    for field, wire, content in message_fields(message):
        if (field, wire) == (1, 1):
            (key,) = struct.unpack("<q", content)
        elif field == 2 and wire in (2, 5):
            values.append(content)
        elif field in (1, 2):
            raise ValueError(f"field {field} of wire type {wire}")
    joined = b"".join(values)
    if len(joined) % 4:
        raise ValueError("packed floats whose length is no multiple of 4")
    return key, np.frombuffer(joined, "<f4")


def parse_metadata(message: bytes) -> tuple[str, int]:
    """Parse MultiHashTableMetadata: string table_name = 1; uint64 num_entries = 2.

    Raises
    ------
    ValueError
        The bytes are not such a message, or it has no table name.
    """
    name, count = "", 0
    for field, wire, content in message_fields(message):
        if (field, wire) == (1, 2):
            name = content.decode()
        elif (field, wire) == (2, 0):
            count, _ = read_varint(content, 0)
        elif field in (1, 2):
            raise ValueError(f"field {field} of wire type {wire}")
    if not name:
        raise ValueError("no table name")
    return name, count


def message_fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number, wire type and bytes of each field."""
    position = 0
    while position < len(message):
        tag, position = read_varint(message, position)
        field, wire = tag >> 3, tag & 7
        if wire == 0:
            _, end = read_varint(message, position)
        elif wire == 2:
            length, position = read_varint(message, position)
            end = position + length
        elif wire in (1, 5):
            end = position + (8 if wire == 1 else 4)
        else:
            raise ValueError(f"a field of wire type {wire}")
        if end > len(message):
            raise ValueError("a field that ends after the message")
        yield field, wire, message[position:end]
        position = end


def read_varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(message) or shift > 63:
            raise ValueError("a number that does not end")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _parse_entry(records: Records, index: int, dim: int | None) -> tuple[int, Array]:
    """Parse record `index` of a batch; its length must be `dim` unless that is None."""
    begin = int(records.begin[index])
    number = records.first + index
    try:
        key, values = parse_entry(records.data[begin : begin + int(records.length[index])])
    except ValueError as error:
        raise BadEntryError(number, str(error)) from error
    if key is None:
        raise BadEntryError(number, "no id")
    if not len(values):
        raise BadEntryError(number, f"key {key} without a row (num)")
    if dim is not None and len(values) != dim:
        raise BadEntryError(number, f"key {key} with {len(values)} values instead of {dim}")
    return key, values


def parse_entries(records: Records, dim: int | None) -> Entries:
    """Parse messages whose rows all have the same length.

    Parameters
    ----------
    dim : int or None
        The length of a row; None: that of the first message.

    Raises
    ------
    BadEntryError
        A message is damaged, has no id, no row, or a row of another length.

    Notes
    -----
    Writers emit the fields in order, so the id and the floats have the same positions in all messages of one `dim`.
    Messages of this form are parsed together, the others one by one.
    """
    count = len(records)
    _, first = _parse_entry(records, 0, dim)
    dim = len(first)
    packed = records.data[int(records.begin[0]) + _ID_BYTES] == _PACKED_TAG
    prefix = bytes([_PACKED_TAG]) + varints.encode(4 * dim) if packed else b""
    width = _ID_BYTES + (len(prefix) + 4 * dim if packed else 5 * dim)

    view = np.frombuffer(records.data, np.uint8)
    usual = np.flatnonzero(records.length >= width) if width <= len(view) else np.empty(0, np.int64)
    heads = sliding_window_view(view, min(width, len(view)))[records.begin[usual]]
    fits = heads[:, 0] == _ID_TAG
    if packed:
        fits &= (heads[:, _ID_BYTES : _ID_BYTES + len(prefix)] == np.frombuffer(prefix, np.uint8)).all(axis=1)
    else:
        fits &= (heads[:, _ID_BYTES::5] == _NUM_TAG).all(axis=1)
    begin = records.begin[usual]
    fits &= _ends_usually(view, begin + width, begin + records.length[usual])
    if not fits.all():
        usual, heads = usual[fits], heads[fits]

    ids = np.empty(count, np.int64)
    values = np.empty((count, dim), np.float32)
    ids[usual] = heads[:, 1:_ID_BYTES].copy().view("<i8")[:, 0]
    if packed:
        values[usual] = heads[:, width - 4 * dim :].copy().view("<f4")
    else:
        values[usual] = heads[:, _ID_BYTES:].reshape(-1, dim, 5)[:, :, 1:].copy().view("<f4")[:, :, 0]
    if len(usual) < count:
        rest = np.ones(count, np.bool_)
        rest[usual] = False
        for index in np.flatnonzero(rest).tolist():
            ids[index], values[index] = _parse_entry(records, index, dim)
    return Entries(ids, values, int(records.length.sum()) - count * (8 + 4 * dim))


def _ends_usually(view: Array, position: Array, end: Array) -> Array:
    """Return which messages have only the optimizer's state and the time between `position` [n] and `end` [n]."""

    def byte(at: Array) -> Array:
        found: Array = view[np.minimum(at, len(view) - 1)].astype(np.int64)
        return found

    present = (position < end) & (byte(position) == _OPTIMIZER_TAG)
    low, high = byte(position + 1), byte(position + 2)
    short = low < 0x80
    length = np.where(short, low, low & 0x7F | high << 7)
    known = ~present | short | (high < 0x80)
    position = np.where(present, position + np.where(short, 2, 3) + length, position)

    usual = known & (position == end)
    timed = known & (position + 1 < end) & (end - position <= 11) & (byte(position) == _TIME_TAG)
    for step in range(1, 11):
        at = position + step
        # All bytes of a varint except the last have the high bit set.
        timed &= (at >= end) | ((byte(at) >= 0x80) == (at < end - 1))
    either: Array = usual | timed
    return either
