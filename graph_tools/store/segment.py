# SPDX-License-Identifier: Apache-2.0
"""Read a segment through a memory map, after all checks that docs/delta_format.md lists, in their order."""

from __future__ import annotations

import hashlib
import operator
import stat
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.bundle import checksum
from graph_tools.errors import UnreadableError
from graph_tools.store.block_sums import BLOCK_BYTES
from graph_tools.store.delta import Delta, StringKeys, TableDelta
from graph_tools.store.segment_directory import (
    Directory,
    Place,
    TableEntry,
    TablePlaces,
    parse_directory,
    place_table,
)
from graph_tools.store.segment_layout import (
    HASH_BYTES,
    HEADER_BYTES,
    SegmentHeader,
    WrongSegmentError,
    aligned,
    unpack_header,
)
from graph_tools.tensors import Array, ArrayTensor, TensorSource

_CHUNK_BYTES = 1 << 20
_CHUNK_KEYS = 1 << 16


class Segment:
    """A segment that has passed all checks.

    Attributes
    ----------
    path : Path
    header : SegmentHeader
    hash : bytes [32]
        SHA-256 of everything before it.
    delta : Delta
        Its arrays are views of the file.

    Raises
    ------
    UnreadableError
        The file cannot be read, or a check fails; the message names the file, what was found and what was expected.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.header = read_segment_header(path)
            self._raw = np.memmap(path, np.uint8, "r")
            if len(self._raw) != self.header.file_size:
                raise WrongSegmentError(f"{len(self._raw)} bytes", f"file_size {self.header.file_size}")
            self._check_blocks()
            self.hash = self._check_hash()
            directory = parse_directory(self._bytes(self._directory).tobytes(), self.header)
            self._check_places(directory)
            self.delta = self._delta(directory)
            self._check_zeros()
            for table in self.delta.tables:
                _check_keys(table)
        except WrongSegmentError as error:
            raise UnreadableError(f"{path}: {error}") from error
        except OSError as error:
            raise UnreadableError(f"{path}: {error.strerror}, expected a segment") from error

    @property
    def chain(self) -> bytes:
        """Return the chain hash of the last epoch."""
        return self.header.chain if self.header.compacted else self.hash

    @property
    def _directory(self) -> Place:
        return Place(self.header.directory_offset, self.header.directory_size)

    def _bytes(self, place: Place) -> Array:
        return np.asarray(self._raw[place.begin : place.end])

    # Checksums

    def _check_blocks(self) -> None:
        header = self.header
        stored = self._bytes(Place(header.checksums_offset, 4 * header.blocks)).view("<u4").tolist()
        for block, expected in enumerate(stored):
            begin = HEADER_BYTES + block * BLOCK_BYTES
            end = min(begin + BLOCK_BYTES, header.checksums_offset)
            found = checksum.extend(0, self._raw[begin:end])
            if found != expected:
                raise WrongSegmentError(
                    f"checksum {found:#010x} of block {block}, bytes {begin} to {end - 1}",
                    f"{expected:#010x}; the file is damaged",
                )

    def _check_hash(self) -> bytes:
        digest = hashlib.sha256()
        end = len(self._raw) - HASH_BYTES
        for begin in range(0, end, _CHUNK_BYTES):
            digest.update(self._raw[begin : min(begin + _CHUNK_BYTES, end)].data)
        stored = self._raw[end:].tobytes()
        if digest.digest() != stored:
            raise WrongSegmentError(f"hash {digest.hexdigest()}", f"{stored.hex()}; the file is damaged")
        return stored

    # Places

    def _check_places(self, directory: Directory) -> None:
        """Check that the arrays fill the file up to the directory, and remember their places."""
        self._tables: list[TablePlaces] = []
        self._places: list[Place] = []
        place = HEADER_BYTES
        for table in directory.tables:
            place = self._check_offset(f"table '{table.name}'", table.offset, place)
            found = place_table(table, place, partial(self._string_bytes, table))
            self._tables.append(found)
            for array in found.all():
                place = self._check_end(f"table '{table.name}'", array)
        for variable in directory.variables:
            place = self._check_offset(f"variable '{variable.name}'", variable.offset, place)
            place = self._check_end(f"variable '{variable.name}'", Place(place, variable.size))
        if aligned(place) != self.header.directory_offset:
            raise WrongSegmentError(
                f"directory: directory_offset {self.header.directory_offset}",
                f"{aligned(place)}, the next multiple of 64 after the last array",
            )

    def _check_offset(self, what: str, offset: int, place: int) -> int:
        if offset != aligned(place):
            raise WrongSegmentError(f"directory: {what}: offset {offset}", f"{aligned(place)}")
        return offset

    def _check_end(self, what: str, array: Place) -> int:
        if array.end > self.header.directory_offset:
            found = f"directory: {what}: an array at bytes {array.begin} to {array.end}"
            raise WrongSegmentError(found, f"its end at {self.header.directory_offset}, the directory, or before")
        if array.size:
            self._places.append(array)
        return array.end

    def _string_bytes(self, table: TableEntry, begin: int, count: int) -> int:
        """Return the bytes of an array of strings, after a check of where they begin and end."""
        what = f"table '{table.name}'"
        self._check_end(what, Place(begin, 8 * (count + 1)))
        self._places.pop()
        ends = self._bytes(Place(begin, 8 * (count + 1))).view("<u8")
        last, room = int(ends[-1]), self.header.directory_offset - begin - 8 * (count + 1)
        if ends[0] or last > room or _descends(ends):
            found = f"directory: {what}: strings that begin at {ends[0]} and end at {last}"
            raise WrongSegmentError(found, f"0 to at most {room}, ascending")
        return 8 * (count + 1) + last

    def _check_zeros(self) -> None:
        place = HEADER_BYTES
        for array in [*self._places, self._directory]:
            if self._raw[place : array.begin].any():
                raise WrongSegmentError(f"bytes between {place} and {array.begin} that are set", "zeros between arrays")
            place = array.end

    # Content

    def _delta(self, directory: Directory) -> Delta:
        tables = tuple(
            TableDelta(
                name=entry.name,
                key_kind=entry.key_kind,
                dim=entry.dim,
                changed=self._keys(entry, places.keys, entry.changed),
                rows=ArrayTensor(self._floats(places.rows, (entry.changed, entry.dim))),
                deleted=self._keys(entry, places.deleted, entry.deleted),
                default_numbers=self._bytes(places.default_numbers).view("<u4"),
                default_rows=self._floats(places.default_rows, (entry.defaults, entry.dim)),
            )
            for entry, places in zip(directory.tables, self._tables, strict=True)
        )
        variables: dict[str, TensorSource] = {
            entry.name: ArrayTensor(self._floats(Place(entry.offset, entry.size), entry.shape))
            for entry in directory.variables
        }
        return Delta(tables, variables, dict(directory.streams), directory.chains)

    def _floats(self, place: Place, shape: tuple[int, ...]) -> Array:
        return self._bytes(place).view("<f4").reshape(shape)

    def _keys(self, entry: TableEntry, place: Place, count: int) -> TensorSource:
        raw = self._bytes(place)
        if entry.key_kind != "string":
            return ArrayTensor(raw.view("<i8"))
        size = 8 * (count + 1) if count else 0
        return StringKeys(raw[:size].view("<u8"), raw[size:])


def read_segment_header(path: Path) -> SegmentHeader:
    """Read and check the header of a segment.

    Raises
    ------
    WrongSegmentError, OSError
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise WrongSegmentError("not a file", "a segment")
    with path.open("rb") as stream:
        return unpack_header(stream.read(HEADER_BYTES), path.stat().st_size)


def _descends(numbers: Array) -> bool:
    return bool((numbers[1:] < numbers[:-1]).any())


def _check_keys(table: TableDelta) -> None:
    """Raise an error if keys do not ascend, a key is changed and deleted, or a row number is negative."""
    where = f"table '{table.name}':"
    for what, keys in (("changed", table.changed), ("deleted", table.deleted)):
        _check_ascending(f"{where} {what} key", keys)
    _check_ascending(f"{where} default number", ArrayTensor(table.default_numbers))
    if table.key_kind == "row_number" and table.changed.shape[0]:
        first = next(table.changed.chunks(1))[0]
        if first < 0:
            raise WrongSegmentError(f"{where} row number {first}", "0 or more")
    for key in _common_keys(table.changed, table.deleted):
        raise WrongSegmentError(f"{where} key {key!r} is changed and deleted", "one of both")


def _check_ascending(what: str, keys: TensorSource) -> None:
    last: list[Any] = []
    for block in keys.chunks(_CHUNK_KEYS):
        listed = [*last, *block.tolist()] if block.dtype == object else None
        numbers = block if listed is not None or not last else np.concatenate([np.asarray(last, block.dtype), block])
        if listed is not None:
            fault = next((i for i, ok in enumerate(map(operator.lt, listed, islice(listed, 1, None))) if not ok), None)
        else:
            wrong = numbers[1:] <= numbers[:-1]
            fault = int(wrong.argmax()) if wrong.any() else None
        if fault is not None:
            pair = listed if listed is not None else numbers.tolist()
            raise WrongSegmentError(f"{what} {pair[fault + 1]!r} after {pair[fault]!r}", "ascending keys")
        last = [block[-1]]


def _common_keys(changed: TensorSource, deleted: TensorSource) -> Iterator[Any]:
    """Yield the keys that two ascending sequences have both, in blocks of the first between those of the second."""
    if not (changed.shape[0] and deleted.shape[0]):
        return
    if changed.dtype == object:
        first = (key for block in changed.chunks(_CHUNK_KEYS) for key in block.tolist())
        key = next(first, None)
        for block in deleted.chunks(_CHUNK_KEYS):
            for other in block.tolist():
                while key is not None and key < other:
                    key = next(first, None)
                if key == other:
                    yield key
        return
    numbers = changed.read()
    for block in deleted.chunks(_CHUNK_KEYS):
        place = np.searchsorted(numbers, block)
        inside = place < len(numbers)
        yield from block[inside][numbers[place[inside]] == block[inside]].tolist()
