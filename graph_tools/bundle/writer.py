# SPDX-License-Identifier: Apache-2.0
"""Write a tensor bundle as a stream; the files have temporary names until all are complete."""

from __future__ import annotations

import io
import secrets
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import numpy as np

from graph_tools.bundle import checksum, dtypes, varints
from graph_tools.bundle.output_file import OutputFile
from graph_tools.bundle.strings import LENGTHS_CRC_BYTES, extend_by_lengths
from graph_tools.bundle.table_writer import write_table
from graph_tools.errors import ConversionError, UsageError
from graph_tools.tensors import Array, TensorSource, byte_size, rows_per_chunk

_VERSION = 1
# Bytes of strings that are joined at a time.
_JOIN_BYTES = 8 << 20


class BundleWriter:
    """Writes a tensor bundle; as a context manager, removes everything unless `finish` was called.

    Parameters
    ----------
    prefix : Path
        The path without `.index`; its folder is created.
    shard_bytes : int [bytes]
        A tensor that would make a shard larger than this begins the next shard; a tensor is never divided.
    digest : bool
        Compute the SHA-256 of every file while it is written.

    Attributes
    ----------
    digests : dict of Path to str
        SHA-256 in hexadecimal of every file once the bundle is finished, if requested.

    Raises
    ------
    UsageError
        A bundle with this prefix already exists.
    ConversionError
        Writing failed: there is no room, TensorFlow does not have a dtype, or a name occurs twice.
    """

    def __init__(self, prefix: Path, shard_bytes: int = 4 << 30, digest: bool = False) -> None:
        self.prefix = Path(prefix)
        self.digests: dict[Path, str] = {}
        self._digest = digest
        self._shard_bytes = shard_bytes
        self._token = secrets.token_hex(4)
        self._entries: dict[bytes, bytes] = {}
        self._shards: list[OutputFile] = []
        self._final: list[Path] = []
        self._folders: list[Path] = []
        self._open = True
        self._refuse_existing()
        try:
            self._make_folders()
            self._next_shard()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, name: str, tensor: TensorSource) -> None:
        """Write a tensor; a string tensor is read twice, since all lengths precede the bytes."""
        key = name.encode("utf-8", "surrogateescape")
        number = dtypes.type_number(tensor.dtype)
        if not self._open:
            raise self._bad(name, "a writer that is closed", "an open one")
        if not key or key.startswith(b"\0") or key in self._entries:
            raise self._bad(name, "a name that is empty or taken", "a new one")
        if number is None:
            raise self._bad(name, f"dtype {tensor.dtype}", "one that TensorFlow has")
        try:
            self._entries[key] = self._write(name, tensor, number)
        except BaseException:
            self.close()
            raise

    def finish(self) -> None:
        """Write the index and rename all files to their final names, the index last."""
        if not self._open:
            raise ConversionError(f"{self.prefix}: a writer that is closed, expected an open one")
        try:
            index = OutputFile(self._temporary("index"), self.prefix, self._digest)
            self._shards.append(index)
            self._write_index(index)
            count = len(self._shards) - 1
            names = [f"data-{shard:05d}-of-{count:05d}" for shard in range(count)] + ["index"]
            for file, suffix in zip(self._shards, names, strict=True):
                file.close()
                final = Path(f"{self.prefix}.{suffix}")
                file.rename(final)
                self._final.append(final)
                if file.digest is not None:
                    self.digests[final] = file.digest.hexdigest()
        except BaseException:
            self.close()
            raise
        self._open = False

    def close(self) -> None:
        """Remove all written files, unless the bundle is finished."""
        if not self._open:
            return
        self._open = False
        for file in self._shards:
            file.discard()
        for path in self._final:
            path.unlink(missing_ok=True)
        for folder in self._folders:
            try:
                folder.rmdir()
            except OSError:
                break  # another process has created a file there

    def _bad(self, name: str, found: str, expected: str) -> ConversionError:
        return ConversionError(f"{self.prefix}: tensor '{name}': {found}, expected {expected}")

    def _refuse_existing(self) -> None:
        folder, start = self.prefix.parent, self.prefix.name
        taken = (f"{start}.index", f"{start}.data-")
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name.startswith(taken):
                raise UsageError(f"{path}: exists, expected a prefix without files")

    def _make_folders(self) -> None:
        missing = [path for path in (self.prefix.parent, *self.prefix.parent.parents) if not path.exists()]
        for path in reversed(missing):
            try:
                path.mkdir()
            except OSError as error:
                raise ConversionError(f"{path}: {error.strerror}, expected a folder for {self.prefix.name}") from error
            self._folders.insert(0, path)

    def _temporary(self, part: str) -> Path:
        return self.prefix.with_name(f".{self.prefix.name}.{self._token}.{part}")

    def _next_shard(self) -> None:
        if self._shards:
            self._shards[-1].close()
        self._shards.append(OutputFile(self._temporary(f"data-{len(self._shards):05d}"), self.prefix, self._digest))

    def _write(self, name: str, tensor: TensorSource, number: int) -> bytes:
        from tensorflow.core.protobuf import tensor_bundle_pb2  # late: this imports TensorFlow

        if self._shards[-1].size and self._shards[-1].size + byte_size(tensor) > self._shard_bytes:
            self._next_shard()
        file = self._shards[-1]
        file.purpose = f"tensor '{name}'"
        offset = file.size
        crc = (
            self._write_strings(file, name, tensor)
            if tensor.dtype == object
            else self._write_numbers(file, name, tensor)
        )
        entry = tensor_bundle_pb2.BundleEntryProto(
            dtype=number,
            shard_id=len(self._shards) - 1,
            offset=offset,
            size=file.size - offset,
            crc32c=checksum.mask(crc),
        )
        entry.shape.SetInParent()
        for size in tensor.shape:
            entry.shape.dim.add(size=size)
        return bytes(entry.SerializeToString(deterministic=True))

    def _write_numbers(self, file: OutputFile, name: str, tensor: TensorSource) -> int:
        dtype = dtypes.little_endian(tensor.dtype)
        crc = 0
        for block in self._blocks(name, tensor):
            raw = np.ascontiguousarray(block, dtype).reshape(-1).view(np.uint8)
            crc = file.write_summed(raw, crc)
        return crc

    def _write_strings(self, file: OutputFile, name: str, tensor: TensorSource) -> int:
        crc = total = 0
        for block in self._blocks(name, tensor):
            lengths = np.fromiter(map(len, self._flatten(name, block)), np.int64, block.size)
            file.write(varints.encode_array(lengths))
            crc = extend_by_lengths(crc, lengths)
            total += int(lengths.sum())
        crc = file.write_summed(np.frombuffer(checksum.mask(crc).to_bytes(LENGTHS_CRC_BYTES, "little"), np.uint8), crc)
        begin = file.size
        for block in self._blocks(name, tensor):
            for joined in _join(self._flatten(name, block)):
                crc = file.write_summed(np.frombuffer(joined, np.uint8), crc)
        if file.size - begin != total:
            raise self._bad(name, f"strings of {file.size - begin} bytes when read again", f"{total}")
        return crc

    def _flatten(self, name: str, block: Array) -> list[bytes]:
        flat: list[bytes] = block.reshape(-1).tolist()
        wrong = next((item for item in flat if type(item) is not bytes), None)
        if wrong is not None:
            raise self._bad(name, f"an element of type {type(wrong).__name__}", "bytes")
        return flat

    def _blocks(self, name: str, tensor: TensorSource) -> Iterator[Array]:
        """Yield the tensor's blocks, and refuse blocks that do not fit its dtype or shape."""
        rows = 0
        for block in tensor.chunks(rows_per_chunk(tensor)):
            if block.dtype != tensor.dtype or block.shape[1:] != tensor.shape[1:] or block.ndim != len(tensor.shape):
                found = f"a block {block.dtype}{list(block.shape)}"
                raise self._bad(name, found, f"rows of {tensor.dtype}{list(tensor.shape)}")
            rows += len(block) if block.ndim else 1
            yield block
        expected = tensor.shape[0] if tensor.shape else 1
        if rows != expected:
            raise self._bad(name, f"{rows} rows", f"{expected}")

    def _write_index(self, index: OutputFile) -> None:
        from tensorflow.core.protobuf import tensor_bundle_pb2

        header = tensor_bundle_pb2.BundleHeaderProto(num_shards=len(self._shards) - 1)
        header.version.producer = _VERSION
        entries = [(b"", header.SerializeToString(deterministic=True)), *sorted(self._entries.items())]
        index.purpose = f"an index of {len(self._entries)} tensors"
        table = io.BytesIO()
        write_table(table, entries)
        index.write(np.frombuffer(table.getbuffer(), np.uint8))


def _join(strings: list[bytes]) -> Iterator[bytes]:
    """Yield the strings' bytes, many at a time."""
    begin = size = 0
    for place, string in enumerate(strings):
        size += len(string)
        if size >= _JOIN_BYTES:
            yield b"".join(strings[begin : place + 1])
            begin, size = place + 1, 0
    yield b"".join(strings[begin:])
