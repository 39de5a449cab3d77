# SPDX-License-Identifier: Apache-2.0
"""Write a segment in one pass; equal contents have equal bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from graph_tools.bundle.output_file import OutputFile
from graph_tools.errors import ConversionError
from graph_tools.store.block_sums import SummedBlocks
from graph_tools.store.delta import Delta, TableDelta
from graph_tools.store.segment_directory import (
    Directory,
    Place,
    TableEntry,
    TablePlaces,
    VariableEntry,
    place_table,
)
from graph_tools.store.segment_layout import HASH_BYTES, HEADER_BYTES, LISTS_CHAINS, SegmentHeader, aligned
from graph_tools.tensors import Array, ArrayTensor, TensorSource, rows_per_chunk

_CHUNK_BYTES = 4 << 20
_Named = TypeVar("_Named")


def write_segment(path: Path, header: SegmentHeader, delta: Delta) -> SegmentHeader:
    """Write a segment to a file that must not exist, flush it to the disk, and return its header with all sizes.

    Parameters
    ----------
    header : SegmentHeader
        Its sizes and offsets are computed here.
    delta : Delta
        Its keys must ascend; the reader checks them. A table without changes is left out.

    Raises
    ------
    ConversionError
        The content does not fit the format, or the disk is full.
    """
    tables = _sorted({table.name: table for table in delta.tables if not table.empty})
    variables = _sorted(delta.variables)
    for table in tables.values():
        _check_table(table)
    places = _Places(tables, variables)
    directory = Directory(places.tables, places.variables, tuple(_sorted(delta.streams).items()), delta.chains).pack()
    if delta.chains:
        header = replace(header, compatible=header.compatible | LISTS_CHAINS)
    header = replace(header, directory_offset=places.end, directory_size=len(directory))
    header = replace(header, file_size=header.checksums_offset + 4 * header.blocks + HASH_BYTES)
    file = OutputFile(path, path, digest=True)
    file.purpose = "a segment"
    try:
        file.write(np.frombuffer(header.pack(), np.uint8))
        data = _SummedArrays(file)
        for table, arrays in zip(tables.values(), places.arrays, strict=True):
            _write_table(data, table, arrays)
        for entry in places.variables:
            data.add(entry.offset, entry.size, _float_blocks(variables[entry.name], entry.name))
        data.add(header.directory_offset, len(directory), iter([np.frombuffer(directory, np.uint8)]))
        file.write(np.array(data.finish(), "<u4").view(np.uint8))
        assert file.digest is not None
        file.write(np.frombuffer(file.digest.digest(), np.uint8))
        file.close()
        _flush(path)
    except BaseException:
        file.discard()
        raise
    return header


def _sorted(named: Mapping[str, _Named]) -> dict[str, _Named]:
    return dict(sorted(named.items(), key=lambda item: item[0].encode()))


def _flush(path: Path) -> None:
    """Make a file read-only, and flush it to the disk."""
    with path.open("rb") as stream:
        os.fchmod(stream.fileno(), 0o444)
        os.fsync(stream.fileno())


def _check_table(table: TableDelta) -> None:
    dtype = np.dtype(object) if table.key_kind == "string" else np.dtype(np.int64)
    defaults = np.empty((0, table.dim), np.float32) if table.default_rows is None else table.default_rows
    for what, tensor, expected in (
        ("changed keys", table.changed, (dtype, (table.changed.shape[0],))),
        ("rows", table.rows, (np.dtype(np.float32), (table.changed.shape[0], table.dim))),
        ("deleted keys", table.deleted, (dtype, (table.deleted.shape[0],))),
        ("default rows", defaults, (np.dtype(np.float32), (len(table.default_numbers), table.dim))),
    ):
        if (tensor.dtype, tuple(tensor.shape)) != expected:
            found = f"{what} {tensor.dtype}{list(tensor.shape)}"
            raise ConversionError(f"table '{table.name}': {found}, expected {expected[0]}{list(expected[1])}")


class _Places:
    """The places of all arrays of a segment.

    Attributes
    ----------
    tables, variables : tuple of entries for the directory
    arrays : list of TablePlaces
    end : int
        Where the directory begins.
    """

    def __init__(self, tables: Mapping[str, TableDelta], variables: Mapping[str, TensorSource]) -> None:
        self.arrays: list[TablePlaces] = []
        place = HEADER_BYTES
        entries = []
        for table in tables.values():
            entry = TableEntry(
                table.name,
                table.key_kind,
                table.dim,
                table.changed.shape[0],
                table.deleted.shape[0],
                len(table.default_numbers),
                aligned(place),
            )
            sizes = iter([_string_bytes(keys) for keys in (table.changed, table.deleted) if keys.shape[0]])
            arrays = place_table(entry, entry.offset, lambda *_, sizes=sizes: next(sizes))
            place = arrays.default_rows.end
            entries.append(entry)
            self.arrays.append(arrays)
        others = []
        for name, tensor in variables.items():
            if tensor.dtype != np.float32 or 0 in tensor.shape:
                found = f"{tensor.dtype}{list(tensor.shape)}"
                raise ConversionError(f"variable '{name}': {found}, expected float32 with elements")
            variable = VariableEntry(name, tuple(tensor.shape), aligned(place))
            place = variable.offset + variable.size
            others.append(variable)
        self.tables, self.variables, self.end = tuple(entries), tuple(others), aligned(place)


def _string_bytes(keys: TensorSource) -> int:
    if keys.dtype != object:
        return 0
    count = keys.shape[0] + 1
    return 8 * count + sum(len(key) for block in keys.chunks(rows_per_chunk(keys, _CHUNK_BYTES)) for key in block)


class _SummedArrays(SummedBlocks):
    """Writes arrays at their places, and computes the checksums of the blocks."""

    def add(self, begin: int, size: int, blocks: Iterator[Array]) -> None:
        """Write zeros up to `begin` and then blocks of bytes, which must have `size` bytes together."""
        if not size:
            return
        self.write(np.zeros(begin - self.file.size, np.uint8))
        for block in blocks:
            self.write(np.ascontiguousarray(block).reshape(-1).view(np.uint8))
        if self.file.size != begin + size:
            raise ConversionError(f"segment: an array of {self.file.size - begin} bytes, expected {size}")


def _write_table(data: _SummedArrays, table: TableDelta, arrays: TablePlaces) -> None:
    def add(place: Place, blocks: Callable[[], Iterable[Array]]) -> None:
        data.add(place.begin, place.size, iter(blocks()))

    add(arrays.keys, lambda: _key_blocks(table.changed))
    add(arrays.rows, lambda: _float_blocks(table.rows, table.name))
    add(arrays.deleted, lambda: _key_blocks(table.deleted))
    add(arrays.default_numbers, lambda: [np.asarray(table.default_numbers, "<u4")])
    if table.default_rows is not None:
        default_rows = table.default_rows
        add(arrays.default_rows, lambda: _float_blocks(ArrayTensor(default_rows), table.name))


def _float_blocks(tensor: TensorSource, name: str) -> Iterator[Array]:
    for block in tensor.chunks(rows_per_chunk(tensor, _CHUNK_BYTES)):
        if block.dtype != np.float32:
            raise ConversionError(f"'{name}': a block of {block.dtype}, expected float32")
        yield np.asarray(block, "<f4")


def _key_blocks(keys: TensorSource) -> Iterator[Array]:
    rows = rows_per_chunk(keys, _CHUNK_BYTES)
    if keys.dtype != object:
        for block in keys.chunks(rows):
            yield np.asarray(block, "<i8")
        return
    end = 0
    yield np.zeros(1, "<u8")
    for block in keys.chunks(rows):
        ends = np.cumsum(np.fromiter(map(len, block), np.uint64, len(block)), dtype="<u8") + np.uint64(end)
        end = int(ends[-1])
        yield ends
    for block in keys.chunks(rows):
        yield np.frombuffer(b"".join(block.tolist()), np.uint8)
