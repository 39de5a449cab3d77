# SPDX-License-Identifier: Apache-2.0
"""Write embedding tables as files; the bytes depend on the table alone, so that equal tables have one file.

The order in the file is rows, key bytes, key offsets, index, checksums. Rows and the bytes of strings pass through
memory in pieces; about 20 bytes per key stay in memory. The header comes last, because it has the places of all others.
The name is the SHA-256 of the whole file, so the file is read once more after it is written, from the page cache if it
fits there.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graph_tools.bundle import checksum
from graph_tools.bundle.output_file import OutputFile
from graph_tools.errors import ConversionError
from graph_tools.store.block_sums import SummedBlocks
from graph_tools.store.fingerprint import fingerprints
from graph_tools.store.index import KEY_BYTES, Index
from graph_tools.store.layout import (
    HEADER_BYTES,
    INDEX_ALIGNMENT,
    MOST_ROWS,
    ROW_ALIGNMENT,
    Header,
    Section,
)
from graph_tools.store.quantize import encode
from graph_tools.store.row_runs import RowRun, row_runs
from graph_tools.store.row_sizes import row_size, row_stride
from graph_tools.store.spec import EncodedRows, TableSpec
from graph_tools.tensors import Array, TensorSource, rows_per_chunk

SUFFIX = ".emb"
MEMORY_LIMIT = 4 << 30
_BLOCK_BYTES = 4 << 20
_READ_BYTES = 1 << 20

Progress = Callable[[int], None]
"""Called with the number of bytes written since the last call."""


@dataclass(frozen=True)
class TableFile:
    """The file of a table.

    Attributes
    ----------
    path : Path
    sha256 : str
    header : Header
    notes : tuple of str
        Remarks for the user on how the file was put into its place.
    """

    path: Path
    sha256: str
    header: Header
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.sha256}{SUFFIX}"

    @property
    def size(self) -> int:
        return self.header.file_size


def write_table(
    folder: Path, spec: TableSpec, *, memory_limit: int = MEMORY_LIMIT, progress: Progress | None = None
) -> TableFile:
    """Write a table into a folder, under the name that follows from its content.

    The name appears only when the file is complete and on disk; an existing file of this name is replaced.

    Raises
    ------
    ConversionError
        The table does not fit the format, a key occurs twice, its index needs more than `memory_limit` bytes, or the
        disk is full.
    """
    file, header, digest = write_temporary(folder, spec, memory_limit, progress)
    final = folder / f"{digest}{SUFFIX}"
    try:
        file.rename(final)
        sync_folder(folder)
    except OSError as error:
        file.unlink(missing_ok=True)
        raise ConversionError(f"{final}: {error.strerror}, expected room and permission to write it") from error
    return TableFile(final, digest, header)


def write_temporary(
    folder: Path, spec: TableSpec, memory_limit: int = MEMORY_LIMIT, progress: Progress | None = None
) -> tuple[Path, Header, str]:
    """Write a table under a hidden name, and return that name, its header and its SHA-256.

    Parameters and errors are those of `write_table`.
    """
    problem = spec.problem()
    if problem is not None:
        raise ConversionError(f"embedding table: {problem}")
    path = folder / temporary_name(str(os.getpid()), secrets.token_hex(8))
    file = OutputFile(path, folder)
    file.purpose = "an embedding table"
    try:
        header = _Writer(file, spec, memory_limit, progress).write()
        file.close()
        return path, header, _finish(path, header)
    except BaseException as error:
        file.discard()
        if isinstance(error, OSError):
            found = f"{folder}: {error.strerror}"
            raise ConversionError(f"{found}, expected room and permission for an embedding table") from error
        raise


def temporary_name(process: str, token: str) -> str:
    """Return a hidden name for an incomplete file."""
    return f".table.{process}.{token}"


def _finish(path: Path, header: Header) -> str:
    """Write the header, flush the file to disk, and return its SHA-256."""
    with path.open("r+b", buffering=0) as stream:
        stream.write(header.pack())
        os.fchmod(stream.fileno(), 0o444)
        # The kernel writes the file back while it is read here.
        digest = file_digest(path)
        os.fsync(stream.fileno())
    return digest


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest, block = hashlib.sha256(), bytearray(_READ_BYTES)
    with path.open("rb", buffering=0) as stream:
        while count := stream.readinto(block):
            digest.update(memoryview(block)[:count])
    return digest.hexdigest()


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Writer:
    """Writes one table into an open file."""

    def __init__(self, file: OutputFile, spec: TableSpec, memory_limit: int, progress: Progress | None) -> None:
        self.file, self.spec, self.memory_limit, self.progress = file, spec, memory_limit, progress
        self.blocks = SummedBlocks(file)
        self.stride = row_stride(spec.row_type, spec.dim)
        self.rows = spec.rows.shape[0]
        self.default_rows = spec.default_rows.shape[0] if spec.default_rows is not None else 0
        full = (spec.dim, self.stride)
        self.runs = row_runs(self.rows, self.default_rows, spec.row_type, full, spec.narrow)
        self.key_count = spec.keys.shape[0] if spec.keys is not None else 0

    def write(self) -> Header:
        """Write everything but the header, whose space is reserved, and return the header."""
        spec = self.spec
        if self.rows + self.default_rows >= MOST_ROWS or self.key_count >= MOST_ROWS:
            found = f"{max(self.rows + self.default_rows, self.key_count)} rows and default rows, or keys"
            raise ConversionError(f"embedding table: {found}, expected below {MOST_ROWS}")
        needed = self.key_count * (KEY_BYTES + 8 * (spec.index_kind == "string" or spec.row_numbers is not None))
        if needed > self.memory_limit:
            found = f"an index of {self.key_count} keys, which takes {needed} bytes of memory to make"
            raise ConversionError(f"embedding table: {found}, expected at most the memory limit of {self.memory_limit}")
        self.file.write(np.zeros(HEADER_BYTES, np.uint8))
        row_data = self._section(ROW_ALIGNMENT, self._row_blocks())
        key_offsets = key_bytes = index_section = Section()
        home_buckets = buckets = 0
        if spec.keys is not None:
            if spec.index_kind == "string":
                strings = _Strings(spec.keys)
                key_bytes = self._section(INDEX_ALIGNMENT, strings.blocks())
                key_offsets = self._section(INDEX_ALIGNMENT, _blocks(strings.offsets))
                index = Index(strings.fingerprints, None, unique=False)
            else:
                index = Index(spec.keys.read().view(np.uint64), self._row_numbers(), unique=True)
            index_section = self._section(INDEX_ALIGNMENT, index.blocks())
            home_buckets, buckets = index.home_buckets, index.buckets
            if index.suspects:
                _check_strings(spec.keys, np.sort(np.concatenate(index.suspects)))
        checksums = self._write_checksums()
        return Header(
            file_size=self.file.size,
            rows=self.rows,
            default_rows=self.default_rows,
            dim=spec.dim,
            row_type=spec.row_type,
            row_stride=self.stride,
            index_kind=spec.index_kind,
            absent_key=spec.absent_key,
            home_buckets=home_buckets,
            buckets=buckets,
            row_data=row_data,
            index=index_section,
            key_offsets=key_offsets,
            key_bytes=key_bytes,
            checksums=checksums,
            narrow=spec.narrow,
        )

    def _section(self, alignment: int, blocks: Iterator[Array]) -> Section:
        """Write blocks of bytes from the next multiple of `alignment` on; without bytes there is no section."""
        offset = size = 0
        for block in blocks:
            raw = np.ascontiguousarray(block).reshape(-1).view(np.uint8)
            if not len(raw):
                continue
            if not size:
                self.blocks.write(np.zeros(-self.file.size % alignment, np.uint8))
                offset = self.file.size
            self.blocks.write(raw)
            size += len(raw)
            if self.progress is not None:
                self.progress(len(raw))
        return Section(offset, size)

    def _write_checksums(self) -> Section:
        """Write the checksums of all blocks behind them, and return where they are."""
        if self.file.size == HEADER_BYTES:
            return Section()
        self.blocks.write(np.zeros(-self.file.size % INDEX_ALIGNMENT, np.uint8))
        offset, raw = self.file.size, np.array(self.blocks.finish(), "<u4").view(np.uint8)
        self.file.write(raw)
        return Section(offset, len(raw), checksum.extend(0, raw))

    def _row_blocks(self) -> Iterator[Array]:
        """Yield the bytes of all rows, each run from a multiple of its alignment on."""
        written = 0
        for run in self.runs:
            yield np.zeros(run.offset - written, np.uint8)
            written = run.offset + run.size
            yield from self._blocks_of(run)

    def _blocks_of(self, run: RowRun) -> Iterator[Array]:
        """Yield the encoded rows of a run [n, stride] uint8."""
        for rows, first in ((self.spec.rows, 0), (self.spec.default_rows, self.rows)):
            begin, end = max(run.first, first), min(run.end, first + (rows.shape[0] if rows is not None else 0))
            if rows is None or begin >= end:
                continue
            count = first
            for block in rows.chunks(max(1, _BLOCK_BYTES // max(self.stride, 4 * self.spec.dim))):
                if block.dtype != rows.dtype or block.shape[1:] != rows.shape[1:]:
                    found = f"a block {block.dtype}{list(block.shape)}"
                    raise ConversionError(f"embedding table: {found}, expected rows of {rows.dtype}{list(rows.shape)}")
                part = block[max(begin - count, 0) : max(end - count, 0)]
                count += len(block)
                if len(part):
                    yield self._encoded(part, run, isinstance(rows, EncodedRows))
                if count >= end and self.spec.narrow:
                    break
            if count < end or (count != first + rows.shape[0] and not self.spec.narrow):
                raise ConversionError(f"embedding table: {count - first} rows, expected {rows.shape[0]}")

    def _encoded(self, block: Array, run: RowRun, encoded: bool) -> Array:
        """Return rows [n, dim], or their bytes, as bytes [n, stride] of a run."""
        size, stored = row_size(self.spec.row_type, run.dim), block
        if run.dim < self.spec.dim:
            kept = size if encoded else run.dim
            if np.asarray(block[:, kept:]).astype(bool).any():
                raise ConversionError(
                    f"embedding table: a row from {run.first} on has elements behind the first "
                    f"{run.dim} that are not zero, expected zeros"
                )
            stored = block[:, :kept]
        if not encoded:
            stored = encode(stored, self.spec.row_type)
        if size == run.stride:
            return stored
        padded = np.zeros((len(block), run.stride), np.uint8)
        padded[:, :size] = stored
        return padded

    def _row_numbers(self) -> Array | None:
        """Return the row numbers of the keys, or None if key i leads to row i."""
        if self.spec.row_numbers is None:
            return None
        numbers = self.spec.row_numbers.read()
        if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) >= self.rows):
            found = f"row numbers {numbers.min()} to {numbers.max()}"
            raise ConversionError(f"embedding table: {found}, expected those of {self.rows} rows")
        if len(numbers) == self.rows and np.array_equal(numbers, np.arange(self.rows)):
            return None
        return numbers.astype(np.uint32)


class _Strings:
    """The bytes of string keys, and their fingerprints and offsets once all blocks have been yielded.

    Attributes
    ----------
    fingerprints : ndarray [n] uint64
    offsets : ndarray [n + 1] uint64
        Where each string begins; the last number is where the last string ends.
    """

    def __init__(self, keys: TensorSource) -> None:
        self.keys = keys
        self.fingerprints = np.empty(keys.shape[0], np.uint64)
        self.offsets = np.zeros(keys.shape[0] + 1, np.uint64)

    def blocks(self) -> Iterator[Array]:
        place = 0
        for block in self.keys.chunks(rows_per_chunk(self.keys, _BLOCK_BYTES)):
            end = place + len(block)
            if end > len(self.fingerprints):
                break
            strings = block.tolist()
            self.fingerprints[place:end] = fingerprints(block)
            lengths = np.fromiter(map(len, strings), np.uint64, len(strings))
            self.offsets[place + 1 : end + 1] = np.cumsum(lengths) + self.offsets[place]
            place = end
            yield np.frombuffer(b"".join(strings), np.uint8)
        if place != len(self.fingerprints):
            raise ConversionError(f"embedding table: {place} keys, expected {len(self.fingerprints)}")


def _check_strings(keys: TensorSource, suspects: Array) -> None:
    """Raise `ConversionError` if two of the strings at these positions, which are ascending, are equal."""
    seen: set[bytes] = set()
    place = 0
    for block in keys.chunks(rows_per_chunk(keys, _BLOCK_BYTES)):
        low, high = np.searchsorted(suspects, (place, place + len(block)))
        for string in block[suspects[low:high] - place].tolist():
            if string in seen:
                raise ConversionError(f"embedding table: key {string!r} occurs twice, expected every key once")
            seen.add(string)
        place += len(block)


def _blocks(array: Array) -> Iterator[Array]:
    for begin in range(0, len(array), _BLOCK_BYTES // 8):
        yield array[begin : begin + _BLOCK_BYTES // 8]
