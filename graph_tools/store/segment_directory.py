# SPDX-License-Identifier: Apache-2.0
"""Define the directory of a segment, and the places of its arrays, as docs/delta_format.md describes them."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from graph_tools.errors import ConversionError
from graph_tools.store.segment_layout import HASH_BYTES, LISTS_CHAINS, SegmentHeader, WrongSegmentError, aligned

KEY_KINDS = ("row_number", "int64", "string")
MOST_NAME_BYTES = 65_535
MOST_DIMENSIONS = 8
_FP32 = 0

_COUNTS = struct.Struct("<IIII")
_TABLE = struct.Struct("<IIQQQQ")
_VARIABLE = struct.Struct("<II")
_NUMBER = struct.Struct("<Q")
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class TableEntry:
    """The record of a table: the counts of keys and default rows, and where its arrays begin."""

    name: str
    key_kind: str
    dim: int
    changed: int
    deleted: int
    defaults: int
    offset: int = 0


@dataclass(frozen=True)
class VariableEntry:
    """The record of a variable: its shape, and where its array begins."""

    name: str
    shape: tuple[int, ...]
    offset: int = 0

    @property
    def size(self) -> int:
        return 4 * math.prod(self.shape)


@dataclass(frozen=True)
class Directory:
    """The records of a segment, in ascending order of the bytes of their names.

    Attributes
    ----------
    streams : tuple of (name, position)
    chains : tuple of bytes [32]
        Those of all epochs but the last, or none.
    """

    tables: tuple[TableEntry, ...]
    variables: tuple[VariableEntry, ...]
    streams: tuple[tuple[str, int], ...]
    chains: tuple[bytes, ...] = ()

    def pack(self) -> bytes:
        """Return the bytes of the directory.

        Raises
        ------
        ConversionError
            A name is empty or too long.
        """
        packed = [_COUNTS.pack(len(self.tables), len(self.variables), len(self.streams), 0)]
        for table in self.tables:
            kind = KEY_KINDS.index(table.key_kind)
            counts = (table.changed, table.deleted, table.defaults)
            packed += [_pack_name(table.name), _TABLE.pack(kind, table.dim, *counts, table.offset)]
        for variable in self.variables:
            packed += [_pack_name(variable.name), _VARIABLE.pack(_FP32, len(variable.shape))]
            packed += [_NUMBER.pack(size) for size in (*variable.shape, variable.offset)]
        for name, position in self.streams:
            packed += [_pack_name(name), _NUMBER.pack(position)]
        return b"".join([*packed, *self.chains])


def _pack_name(name: str) -> bytes:
    raw = name.encode()
    if not 1 <= len(raw) <= MOST_NAME_BYTES:
        raise ConversionError(f"segment: a name of {len(raw)} bytes, expected 1 to {MOST_NAME_BYTES}")
    packed = _LENGTH.pack(len(raw)) + raw
    return packed + bytes(-len(packed) % 8)


class _Records:
    """Reads the fields of the directory in order."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.place = raw, 0

    def take(self, fields: struct.Struct, what: str) -> tuple[int, ...]:
        return fields.unpack(self._bytes(fields.size, what))

    def name(self, what: str) -> str:
        (length,) = self.take(_LENGTH, f"the name of a {what}")
        if not 1 <= length <= MOST_NAME_BYTES:
            raise WrongSegmentError(f"directory: the name of a {what} of {length} bytes", f"1 to {MOST_NAME_BYTES}")
        raw = self._bytes(length, f"the name of a {what}")
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            raise WrongSegmentError(f"directory: {what} {raw!r}", "a name in UTF-8") from None
        if any(self._bytes(-(_LENGTH.size + length) % 8, f"{what} '{name}'")):
            raise WrongSegmentError(f"directory: {what} '{name}': bytes after the name that are set", "zeros")
        return name

    def chains(self, count: int) -> tuple[bytes, ...]:
        what = f"the chain hashes of {count} epochs"
        if count > (len(self.raw) - self.place) // HASH_BYTES:
            raise WrongSegmentError(f"directory: {what} that end after {len(self.raw)} bytes", "whole hashes")
        return tuple(self._bytes(HASH_BYTES, what) for _ in range(count))

    def _bytes(self, count: int, what: str) -> bytes:
        if self.place + count > len(self.raw):
            raise WrongSegmentError(f"directory: {what} that ends after {len(self.raw)} bytes", "whole records")
        self.place += count
        return self.raw[self.place - count : self.place]


def parse_directory(raw: bytes, header: SegmentHeader) -> Directory:
    """Parse a directory, and check everything in it but the places of arrays.

    Raises
    ------
    WrongSegmentError
    """
    records = _Records(raw)
    tables, variables, streams, zero = records.take(_COUNTS, "counts")
    if zero:
        raise WrongSegmentError(f"directory: reserved number {zero}", "0")
    found = Directory(
        tuple(_table(records) for _ in range(tables)),
        tuple(_variable(records) for _ in range(variables)),
        tuple(_stream(records) for _ in range(streams)),
        records.chains(header.last_epoch - header.first_epoch) if header.compatible & LISTS_CHAINS else (),
    )
    # Features that this version does not know may have more.
    if records.place != len(raw) and not header.compatible & ~LISTS_CHAINS:
        raise WrongSegmentError(f"directory: {len(raw)} bytes", f"{records.place}, the end of the last record")
    names = [entry.name for entry in found.tables], [entry.name for entry in found.variables]
    for what, ordered in zip(("table", "variable", "stream"), (*names, [s[0] for s in found.streams]), strict=True):
        _check_order(what, ordered)
    both = set(names[0]) & set(names[1])
    if both:
        raise WrongSegmentError(f"directory: '{min(both)}' is a table and a variable", "one of both")
    return found


def _check_order(what: str, names: Iterable[str]) -> None:
    for before, name in pairwise(names):
        if before.encode() >= name.encode():
            raise WrongSegmentError(f"directory: {what} '{name}' after '{before}'", "ascending names")


def _table(records: _Records) -> TableEntry:
    name = records.name("table")
    kind, dim, changed, deleted, defaults, offset = records.take(_TABLE, f"table '{name}'")
    where = f"directory: table '{name}':"
    if kind >= len(KEY_KINDS):
        raise WrongSegmentError(f"{where} key_kind {kind}", f"a number below {len(KEY_KINDS)}")
    if not dim:
        raise WrongSegmentError(f"{where} dim 0", "1 or more")
    if KEY_KINDS[kind] == "row_number" and (deleted or defaults):
        raise WrongSegmentError(f"{where} {deleted} deleted keys and {defaults} default rows", "0 for row numbers")
    if not (changed or deleted or defaults):
        raise WrongSegmentError(f"{where} a record without changes", "one change or more")
    return TableEntry(name, KEY_KINDS[kind], dim, changed, deleted, defaults, offset)


def _variable(records: _Records) -> VariableEntry:
    name = records.name("variable")
    dtype, rank = records.take(_VARIABLE, f"variable '{name}'")
    where = f"directory: variable '{name}':"
    if dtype != _FP32:
        raise WrongSegmentError(f"{where} dtype {dtype}", f"{_FP32}, fp32")
    if rank > MOST_DIMENSIONS:
        raise WrongSegmentError(f"{where} rank {rank}", f"at most {MOST_DIMENSIONS}")
    sizes = [records.take(_NUMBER, f"variable '{name}'")[0] for _ in range(rank + 1)]
    if 0 in sizes[:-1]:
        raise WrongSegmentError(f"{where} shape {sizes[:-1]}", "elements, without which nothing can change")
    return VariableEntry(name, tuple(sizes[:-1]), sizes[-1])


def _stream(records: _Records) -> tuple[str, int]:
    name = records.name("stream")
    return name, records.take(_NUMBER, f"stream '{name}'")[0]


# Places


@dataclass(frozen=True)
class Place:
    """The bytes of an array; an empty one has no bytes."""

    begin: int
    size: int

    @property
    def end(self) -> int:
        return self.begin + self.size


@dataclass(frozen=True)
class TablePlaces:
    """The arrays of a table, in their order."""

    keys: Place
    rows: Place
    deleted: Place
    default_numbers: Place
    default_rows: Place

    def all(self) -> tuple[Place, ...]:
        return self.keys, self.rows, self.deleted, self.default_numbers, self.default_rows


def place_table(entry: TableEntry, begin: int, string_bytes: Callable[[int, int], int]) -> TablePlaces:
    """Return the places of the arrays of a table that begins at `begin`, a multiple of 64.

    `string_bytes` returns the bytes of an array of `count` strings, more than 0, that begins at an offset.
    """

    def keys(offset: int, count: int) -> Place:
        if entry.key_kind == "string" and count:
            return Place(offset, string_bytes(offset, count))
        return Place(offset, 8 * count)

    changed = keys(begin, entry.changed)
    rows = Place(aligned(changed.end), 4 * entry.changed * entry.dim)
    deleted = keys(aligned(rows.end), entry.deleted)
    numbers = Place(aligned(deleted.end), 4 * entry.defaults)
    return TablePlaces(changed, rows, deleted, numbers, Place(aligned(numbers.end), 4 * entry.defaults * entry.dim))
