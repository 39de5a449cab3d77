# SPDX-License-Identifier: Apache-2.0
"""Read a tensor bundle: list its tensors, and read each as a stream."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graph_tools.bundle import dtypes
from graph_tools.bundle.extent import Extent
from graph_tools.bundle.slice_keys import FULL, is_slice_key, slice_key
from graph_tools.bundle.sliced import Slice, SlicedTensor
from graph_tools.bundle.stored import NumericTensor, StoredTensor
from graph_tools.bundle.strings import LENGTHS_CRC_BYTES, StringTensor
from graph_tools.bundle.table_reader import read_table
from graph_tools.errors import UnreadableError
from graph_tools.tensors import TensorSource, rows_per_chunk

_VERSION = 1
_LITTLE = 0


class BundleEntry(NamedTuple):
    """Dtype and shape of a tensor; dtype `object` for strings, `void` for tensors that cannot be read (DT_VARIANT)."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class BundleReader:
    """A tensor bundle.

    Parameters
    ----------
    prefix : Path
        The path without `.index`, such as `model/variables/variables`.

    Raises
    ------
    UnreadableError
        The index is missing or damaged. Methods raise it for damaged data as well.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = Path(prefix)
        self.index = Path(f"{prefix}.index")
        self._check_prefix()
        self._values = dict(read_table(self.index))
        self._shard_count = self._read_header()
        self._names = {_name(key): key for key in self._values if key and not is_slice_key(key)}

    def names(self) -> list[str]:
        """Return the names of all tensors, sorted by their bytes; a partitioned variable is one tensor."""
        return list(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def entry(self, name: str) -> BundleEntry:
        entry = self._entry(self._key(name), name)
        return BundleEntry(dtypes.numpy_dtype(entry.dtype), self._shape(entry, name))

    def byte_size(self, name: str) -> int:
        """Return the number of bytes of the tensor in the shards."""
        return sum(entry.size for _, entry in self._pieces(name))

    def checksums(self, name: str) -> tuple[int, ...]:
        """Return the stored checksums of the tensor's pieces; tensors with equal content have equal checksums."""
        return tuple(int(entry.crc32c) for _, entry in self._pieces(name))

    def tensor(self, name: str) -> TensorSource:
        """Return a tensor whose elements are read only when they are requested.

        Its checksum is compared when it has been read to its end, before the last rows are returned.
        """
        key = self._key(name)
        entry = self._entry(key, name)
        if not entry.slices:
            return self._tensor_at(entry, f"tensor '{name}'")
        dtype, shape = self.entry(name)
        slices = []
        for index, (extents, part) in enumerate(self._slices(entry, key, name)):
            label = f"tensor '{name}', slice {index}"
            whole = [size if length == FULL else length for (_, length), size in zip(extents, shape, strict=True)]
            if part.dtype != entry.dtype or list(self._shape(part, label)) != whole:
                found = f"{dtypes.type_name(part.dtype)}{list(self._shape(part, label))}"
                raise self._bad(f"{label}: {found}", f"{dtypes.type_name(entry.dtype)}{whole}")
            slices.append(Slice(tuple(start for start, _ in extents), self._tensor_at(part, label)))
        try:
            return SlicedTensor(dtype, shape, slices)
        except ValueError as error:
            raise self._bad(f"tensor '{name}': {error}", f"each element of {list(shape)} once") from error

    def verify(self, name: str) -> None:
        """Read a tensor and raise UnreadableError if its checksum is wrong."""
        tensor = self.tensor(name)
        for _ in tensor.chunks(rows_per_chunk(tensor)):
            pass

    def check_files(self) -> None:
        """Raise UnreadableError if a shard is missing or too short for any tensor; this reads no elements."""
        for name in self._names:
            for label, entry in self._pieces(name):
                self._extent(entry, label).check_file()

    @cached_property
    def _messages(self) -> Any:
        # Imported late, since this imports TensorFlow.
        from tensorflow.core.protobuf import tensor_bundle_pb2

        return tensor_bundle_pb2

    def _check_prefix(self) -> None:
        if self.index.exists():
            return
        if self.prefix.is_dir():
            raise UnreadableError(f"{self.prefix}: a folder, expected the prefix of a tensor bundle in it")
        if self.prefix.is_file():
            raise UnreadableError(
                f"{self.prefix}: a file, expected a prefix with {self.index.name} beside it (checkpoint V2)"
            )
        raise UnreadableError(f"{self.index}: not found, expected the index of a tensor bundle")

    def _bad(self, found: str, expected: str) -> UnreadableError:
        return UnreadableError(f"{self.index}: {found}, expected {expected}")

    def _parse(self, message: Any, value: bytes, label: str) -> Any:
        from google.protobuf.message import DecodeError

        try:
            message.ParseFromString(value)
        except DecodeError as error:
            raise self._bad(f"{label}: {len(value)} bytes that do not parse", message.DESCRIPTOR.name) from error
        return message

    def _read_header(self) -> int:
        if b"" not in self._values:
            raise self._bad("no entry under the empty key", "the header of a tensor bundle")
        header = self._parse(self._messages.BundleHeaderProto(), self._values[b""], "header")
        if header.endianness != _LITTLE:
            raise self._bad("big-endian data", "little-endian")
        if header.version.min_consumer > _VERSION:
            raise self._bad(f"a bundle for readers of version {header.version.min_consumer}", f"at most {_VERSION}")
        if header.num_shards < 1:
            raise self._bad(f"{header.num_shards} shards", "at least one")
        return int(header.num_shards)

    def _key(self, name: str) -> bytes:
        if name not in self._names:
            raise self._bad(f"no tensor '{name}'", f"one of its {len(self._names)} names")
        return self._names[name]

    def _entry(self, key: bytes, label: str) -> Any:
        return self._parse(self._messages.BundleEntryProto(), self._values[key], label)

    def _shape(self, entry: Any, label: str) -> tuple[int, ...]:
        shape = tuple(dim.size for dim in entry.shape.dim)
        if entry.shape.unknown_rank or any(size < 0 for size in shape):
            raise self._bad(f"tensor '{label}': an open shape {list(shape)}", "a size for each dimension")
        return shape

    def _slices(self, entry: Any, key: bytes, name: str) -> Iterator[tuple[list[tuple[int, int]], Any]]:
        """Yield (start, length) per dimension, and the entry, of each slice."""
        rank = len(entry.shape.dim)
        for slice_proto in entry.slices:
            extents = [(e.start, e.length if e.HasField("length") else FULL) for e in slice_proto.extent]
            if len(extents) != rank or not rank:
                raise self._bad(f"tensor '{name}': a slice of {len(extents)} dimensions", f"{max(rank, 1)}")
            part = slice_key(key, extents)
            if part not in self._values:
                raise self._bad(f"tensor '{name}': no data for slice {extents}", "an entry for each slice")
            yield extents, self._entry(part, name)

    def _pieces(self, name: str) -> Iterator[tuple[str, Any]]:
        """Yield the pieces of the tensor in the shards, itself or its slices, each with its name for messages."""
        key = self._key(name)
        entry = self._entry(key, name)
        if not entry.slices:
            yield f"tensor '{name}'", entry
        for index, (_, part) in enumerate(self._slices(entry, key, name)):
            yield f"tensor '{name}', slice {index}", part

    def _extent(self, entry: Any, label: str) -> Extent:
        if not 0 <= entry.shard_id < self._shard_count:
            raise self._bad(f"{label}: in shard {entry.shard_id}", f"one of {self._shard_count} shards")
        if entry.offset < 0 or entry.size < 0:
            raise self._bad(f"{label}: {entry.size} bytes at {entry.offset}", "a place in a shard")
        return Extent(self._shard(entry.shard_id), label, entry.offset, entry.size, entry.crc32c)

    def _tensor_at(self, entry: Any, label: str) -> StoredTensor:
        dtype, shape = dtypes.numpy_dtype(entry.dtype), self._shape(entry, label)
        if dtype == dtypes.OPAQUE:
            raise self._bad(f"{label}: {dtypes.type_name(entry.dtype)}", "numbers or strings")
        count = math.prod(shape)
        extent = self._extent(entry, label)
        if entry.dtype == dtypes.DT_STRING:
            if entry.size < count + LENGTHS_CRC_BYTES:
                raise self._bad(
                    f"{label}: string{list(shape)} in {entry.size} bytes", f"{count + LENGTHS_CRC_BYTES} or more"
                )
            extent.check_file()
            return StringTensor(extent, dtype, shape)
        if entry.size != count * dtype.itemsize:
            kind = f"{dtypes.type_name(entry.dtype)}{list(shape)}"
            raise self._bad(f"{label}: {kind} in {entry.size} bytes", f"{count * dtype.itemsize}")
        extent.check_file()
        return NumericTensor(extent, dtype, shape)

    def _shard(self, number: int) -> Path:
        path = Path(f"{self.prefix}.data-{number:05d}-of-{self._shard_count:05d}")
        return path if path.exists() else self._unpadded_shards.get((number, self._shard_count), path)

    @cached_property
    def _unpadded_shards(self) -> dict[tuple[int, int], Path]:
        """Shards next to the index whose numbers do not have five digits."""
        pattern = re.compile(re.escape(self.prefix.name) + r"\.data-(\d+)-of-(\d+)")
        found = {}
        for path in self.prefix.parent.iterdir():
            if match := pattern.fullmatch(path.name):
                found[int(match[1]), int(match[2])] = path
        return found


def _name(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")
