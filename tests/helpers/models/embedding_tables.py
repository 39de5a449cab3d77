# SPDX-License-Identifier: Apache-2.0
"""Create tables for the tests of embedding table files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.store import TableSpec, write_table
from graph_tools.store.layout import HEADER_BYTES
from graph_tools.tensors import Array, ArrayTensor, StreamTensor

INDEX_KINDS = ("direct", "int64", "string")


def rows_of(count: int, dim: int, seed: int = 0) -> Array:
    """Return float32 [count, dim] with a zero row and a row with a single value."""
    rows = np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)
    rows[1:2] = 0
    rows[2:3] = 3
    return rows


def keys_of(kind: str, count: int, seed: int = 0) -> Array | None:
    """Return keys [count] of a kind: int64 with both ends of their range, or strings, one of them empty."""
    if kind == "direct":
        return None
    if kind == "string":
        keys = np.empty(count, object)
        keys[:] = [b"\x00user/%d" % number if number else b"" for number in range(count)]
        return keys
    ends = np.array([-(1 << 63), (1 << 63) - 1, 0, -1, 1], np.int64)
    others = np.random.default_rng(seed).permutation(3 * count)[:count].astype(np.int64) + 10
    return np.concatenate([ends, others])[:count]


def absent_of(kind: str, count: int) -> Array:
    """Return keys that no table of `keys_of` with this count contains."""
    if kind == "direct":
        return np.array([-1, -(1 << 63), count, count + 5, (1 << 63) - 1], np.int64)
    if kind == "string":
        absent = np.empty(4, object)
        absent[:] = [b"item", b"\x00user/", b"\x00user/%d" % count, b"a" * 300]
        return absent
    return np.array([-2, -(1 << 40), 4 * count + 100, 1 << 62], np.int64)


def spec_of(kind: str, count: int, dim: int = 5, row_type: str = "fp32", **more: Any) -> TableSpec:
    """Return a table of `rows_of` and `keys_of`."""
    keys = keys_of(kind, count)
    held = None if keys is None else ArrayTensor(keys)
    return TableSpec(dim, ArrayTensor(rows_of(count, dim)), row_type, held, **more)


def present_of(kind: str, count: int) -> Array:
    """Return the keys of a table of `keys_of`, in the order of its rows."""
    keys = keys_of(kind, count)
    return np.arange(count) if keys is None else keys


def streamed(count: int, dim: int, make: Callable[[int, int], Array]) -> StreamTensor:
    """Generate rows float32 [count, dim] on demand: `make(begin, end)` returns some of them."""

    def chunks(rows: int) -> Iterator[Array]:
        for begin in range(0, count, rows):
            yield make(begin, min(begin + rows, count))

    return StreamTensor(np.dtype(np.float32), (count, dim), chunks)


def written(folder: Path, spec: TableSpec) -> Path:
    """Write a table and return the path of its file."""
    return write_table(folder, spec).path


def altered(file: Path, place: int, value: bytes, recount: bool = False) -> Path:
    """Copy a file with other bytes at an offset; `recount` corrects the checksum of the header."""
    from graph_tools.bundle import checksum

    raw = bytearray(file.read_bytes())
    raw[place : place + len(value)] = value
    if recount:
        raw[252:HEADER_BYTES] = checksum.extend(0, bytes(raw[:252])).to_bytes(4, "little")
    copy = file.with_name("altered.emb")
    copy.write_bytes(raw)
    return copy
