# SPDX-License-Identifier: Apache-2.0
"""Read a table's file through a memory map: its header, rows as numbers, and lookups as libprocessor does them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.bundle import checksum
from graph_tools.errors import UnreadableError
from graph_tools.store.block_sums import BLOCK_BYTES
from graph_tools.store.fingerprint import fingerprints, homes
from graph_tools.store.index import buckets_of
from graph_tools.store.layout import BUCKET_BYTES, BUCKET_KEYS, HEADER_BYTES, Header, Section, unpack
from graph_tools.store.quantize import decode
from graph_tools.store.row_sizes import row_size
from graph_tools.store.spec import EncodedRows, TableSpec
from graph_tools.tensors import Array, StreamTensor, TensorSource

_CHUNK_BYTES = 4 << 20


def read_header(path: Path) -> Header:
    """Read and check the header of a file.

    Raises
    ------
    UnreadableError
        The file does not exist, is not a table of this version, or is damaged.
    """
    try:
        with path.open("rb") as stream:
            return unpack(stream.read(HEADER_BYTES), path.stat().st_size, str(path))
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}, expected an embedding table") from error


class TableReader:
    """The file of a table.

    Attributes
    ----------
    path : Path
    header : Header

    Raises
    ------
    UnreadableError
        As for `read_header`.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.header = path, read_header(path)
        self._raw = np.memmap(path, np.uint8, "r")
        self._index = buckets_of(self._bytes(self.header.index))
        self._offsets = self._bytes(self.header.key_offsets).view("<u8")
        self._key_bytes = self._bytes(self.header.key_bytes)
        data = self._bytes(self.header.row_data)
        self._runs = [
            (run, data[run.offset : run.offset + run.size].reshape(-1, run.stride)) for run in self.header.runs
        ]

    def _bytes(self, section: Section) -> Array:
        return self._raw[section.offset : section.end]

    # Checks

    def check(self) -> None:
        """Compare the checksums of all sections, and check the positions in the index and the offsets.

        Raises
        ------
        UnreadableError
            The file is damaged; the message names the section.
        """
        if self.header.version == 1:
            for name, section in self.header.sections().items():
                self._check_sum(f"of {name}", section, section.crc)
        else:
            self._check_blocks()
        counts = self._index["count"]
        if (counts > BUCKET_KEYS).any():
            raise self._damaged(f"a bucket of {counts.max()} keys", f"at most {BUCKET_KEYS}")
        if len(counts) and counts[-1] == BUCKET_KEYS:
            raise self._damaged("a last bucket that is full", "a free slot in it")
        for begin in range(0, len(self._index), _CHUNK_BYTES // BUCKET_BYTES):
            buckets = self._index[begin : begin + _CHUNK_BYTES // BUCKET_BYTES]
            used = np.arange(BUCKET_KEYS) < buckets["count"][:, None]
            if (buckets["rows"][used] >= self.header.rows).any():
                raise self._damaged("a key of a row that does not exist", f"rows below {self.header.rows}")
        ends = self._offsets
        if len(ends) and (ends[0] or ends[-1] != len(self._key_bytes) or (ends[1:] < ends[:-1]).any()):
            raise self._damaged("offsets of keys out of order", f"0 to {len(self._key_bytes)}, ascending")

    def _check_sum(self, what: str, section: Section, expected: int) -> None:
        crc = 0
        for begin in range(section.offset, section.end, _CHUNK_BYTES):
            crc = checksum.extend(crc, self._raw[begin : min(begin + _CHUNK_BYTES, section.end)])
        if crc != expected:
            raise self._damaged(f"checksum {crc:#010x} {what}", f"{expected:#010x}")

    def _check_blocks(self) -> None:
        header = self.header
        self._check_sum("of checksums", header.checksums, header.checksums.crc)
        sums = self._bytes(header.checksums).view("<u4").tolist()
        for number, expected in enumerate(sums):
            begin = HEADER_BYTES + number * BLOCK_BYTES
            block = Section(begin, min(BLOCK_BYTES, header.checksums.offset - begin))
            inside = [n for n, s in header.sections().items() if s.offset < block.end and s.end > begin]
            self._check_sum(f"of block {number} ({', '.join(inside)})", block, expected)

    def _damaged(self, found: str, expected: str) -> UnreadableError:
        return UnreadableError(f"{self.path}: {found}, expected {expected}; the file is damaged")

    # Content

    def rows(self, numbers: Array) -> Array:
        """Return the rows [n, dim] float32 with these numbers [n], which may be those of default rows."""
        dim = self.header.dim
        if len(self._runs) == 1 and self._runs[0][0].dim == dim:
            return decode(np.asarray(self._runs[0][1][numbers]), self.header.row_type, dim)
        found = np.zeros((len(numbers), dim), np.float32)
        for run, rows in self._runs:
            inside = (numbers >= run.first) & (numbers < run.end)
            if inside.any():
                stored = np.asarray(rows[numbers[inside] - run.first])
                found[inside, : run.dim] = decode(stored, self.header.row_type, run.dim)
        return found

    def find(self, keys: Array) -> Array:
        """Return the row numbers [n] int64 of keys [n], integers or bytes objects; -1 for absent keys."""
        if self.header.index_kind == "direct":
            inside = (keys >= 0) & (keys < self.header.rows)
            return np.where(inside, keys, -1).astype(np.int64)
        hashes = _hashes(keys)
        found = np.full(len(keys), -1, np.int64)
        left = np.arange(len(keys))
        bucket = homes(hashes, self.header.home_buckets).astype(np.int64)
        while len(left):
            buckets = self._index[bucket[left]]
            used = np.arange(BUCKET_KEYS) < buckets["count"][:, None]
            equal = used & (buckets["keys"] == hashes[left][:, None])
            if self.header.index_kind == "string":
                for place, slot in np.argwhere(equal):
                    equal[place, slot] = self.key(int(buckets["rows"][place, slot])) == keys[left[place]]
            hit = equal.any(axis=1)
            found[left[hit]] = buckets["rows"][hit, equal[hit].argmax(axis=1)]
            left = left[~hit & (buckets["count"] == BUCKET_KEYS)]
            bucket[left] += 1
        return found

    def key(self, row: int) -> bytes:
        """Return the string key of a row."""
        return self._key_bytes[int(self._offsets[row]) : int(self._offsets[row + 1])].tobytes()

    def lookup(self, keys: Array) -> Array:
        """Return the rows [n, dim] float32 of keys [n]; raise `KeyError` if a key is absent and that is an error."""
        found, policy = self.find(keys), self.header.absent_key
        absent = found < 0
        if absent.any():
            if policy == "error":
                raise KeyError(keys[absent][0])
            if policy == "default":
                found[absent] = self.header.rows + self._default_numbers(keys[absent])
        rows = np.zeros((len(keys), self.header.dim), np.float32)
        there = found >= 0
        rows[there] = self.rows(found[there])
        return rows

    def _default_numbers(self, keys: Array) -> Array:
        count = self.header.default_rows
        if self.header.index_kind == "string":
            return (_hashes(keys) % np.uint64(count)).astype(np.int64)
        return keys.astype(np.int64) % np.int64(count)

    # Copying

    def spec(self) -> TableSpec:
        """Return the contents of the file as a spec, from which the same bytes can be written again."""
        header = self.header
        default = self._encoded_rows(header.rows, header.rows + header.default_rows) if header.default_rows else None
        keys, numbers = self._keys()
        return TableSpec(
            dim=header.dim,
            rows=self._encoded_rows(0, header.rows),
            row_type=header.row_type,
            keys=keys,
            row_numbers=numbers,
            default_rows=default,
            absent_key=header.absent_key,
            narrow=header.narrow,
            file=self.path,
        )

    def _encoded_rows(self, begin: int, end: int) -> EncodedRows:
        size = row_size(self.header.row_type, self.header.dim)

        def make(rows: int) -> Iterator[Array]:
            for run, stored in self._runs:
                width = row_size(self.header.row_type, run.dim)
                for place in range(max(begin, run.first), min(end, run.end), rows):
                    block = stored[place - run.first : min(place + rows, end, run.end) - run.first, :width]
                    yield block if width == size else np.pad(block, ((0, 0), (0, size - width)))

        return EncodedRows(StreamTensor(np.dtype(np.uint8), (end - begin, size), make))

    def _keys(self) -> tuple[TensorSource | None, TensorSource | None]:
        """Return the keys and, if key i does not lead to row i, the numbers of their rows."""
        if self.header.index_kind == "direct":
            return None, None
        if self.header.index_kind == "string":
            return StreamTensor(np.dtype(object), (self.header.rows,), self._string_keys), None
        count = int(self._index["count"].sum(dtype=np.int64))

        def blocks(rows: int, field: str, dtype: Any) -> Iterator[Array]:
            step = max(1, min(rows, _CHUNK_BYTES // 8) // BUCKET_KEYS)
            for begin in range(0, len(self._index), step):
                buckets = self._index[begin : begin + step]
                used = buckets[field][np.arange(BUCKET_KEYS) < buckets["count"][:, None]].astype(dtype)
                for place in range(0, len(used), rows):
                    yield used[place : place + rows]

        keys = StreamTensor(np.dtype(np.int64), (count,), lambda rows: blocks(rows, "keys", np.int64))
        numbers = StreamTensor(np.dtype(np.uint32), (count,), lambda rows: blocks(rows, "rows", np.uint32))
        return keys, numbers

    def _string_keys(self, rows: int) -> Iterator[Array]:
        for begin in range(0, self.header.rows, rows):
            ends = self._offsets[begin : begin + rows + 1].astype(np.int64)
            raw = self._key_bytes[ends[0] : ends[-1]].tobytes()
            block = np.empty(len(ends) - 1, object)
            block[:] = [raw[a - ends[0] : b - ends[0]] for a, b in pairwise(ends)]
            yield block


def _hashes(keys: Array) -> Array:
    return fingerprints(keys) if keys.dtype.kind == "O" else keys.astype(np.int64).view(np.uint64)
