# SPDX-License-Identifier: Apache-2.0
"""The golden segments: every kind of key and record, and one damaged file for each check of a reader."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.bundle import checksum
from graph_tools.store.delta import Delta, TableDelta, no_keys
from graph_tools.store.segment_layout import BLOCK_BYTES, HEADER_BYTES, UNKNOWN_TIME, SegmentHeader
from graph_tools.store.segment_writer import write_segment
from graph_tools.store.timeline import first_chain
from graph_tools.tensors import Array, ArrayTensor

LINEAGE = bytes(range(16))
EVENT_TIME = 1_700_000_000_000_000
SPECIAL = [0x80000000, 0x7FC00001, 0x7F800000, 0xFF800000, 0x00000001, 0x7F7FFFFF]
"""The bits of -0.0, a NaN, both infinities, the smallest and the greatest number."""


def floats(*shape: int, seed: int = 0) -> Array:
    """Return numbers [shape] float32 that begin with the special ones."""
    found = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    flat = found.reshape(-1)
    count = min(len(SPECIAL), flat.size) if seed == 0 else 0
    flat.view(np.uint32)[:count] = SPECIAL[:count]
    return found


def int_keys(*keys: int) -> ArrayTensor:
    return ArrayTensor(np.array(keys, np.int64))


def strings(*keys: bytes) -> ArrayTensor:
    found = np.empty(len(keys), object)
    found[:] = keys
    return ArrayTensor(found)


def table(name: str, changed: ArrayTensor, dim: int, deleted: ArrayTensor | None = None, **more: Any) -> TableDelta:
    kind = more.pop("key_kind", "string" if changed.dtype == object else "int64")
    rows = ArrayTensor(floats(changed.shape[0], dim, seed=more.pop("seed", 0)))
    return TableDelta(name, kind, dim, changed, rows, deleted or no_keys(kind), **more)


def header(first: int = 1, last: int | None = None, **fields: Any) -> SegmentHeader:
    previous = first_chain(LINEAGE) if first == 1 else hashlib.sha256(b"%d" % first).digest()
    made = SegmentHeader(LINEAGE, first, first if last is None else last, 1, previous, EVENT_TIME, EVENT_TIME + 250_000)
    return replace(made, **fields)


INT64 = table(
    "user/embedding",
    int_keys(-(1 << 63), -1, 0, 7, (1 << 63) - 1),
    3,
    int_keys(1, 5),
    default_numbers=np.array([0, 3], np.uint32),
    default_rows=floats(2, 3, seed=1),
)
STRING = table(
    "item/embedding",
    strings(b"", b"\0", b"a", b"a\0", b"ab", "слово".encode(), b"\xff"),
    1,
    strings(b"b", b"bb"),
    default_numbers=np.array([1], np.uint32),
    default_rows=floats(1, 1, seed=2),
)
ROW_NUMBERS = table("category/embedding", int_keys(0, 2, 1 << 40), 5, key_kind="row_number", seed=3)
VARIABLES = {
    "bias": ArrayTensor(np.array(0.5, np.float32)),
    "dense/kernel": ArrayTensor(floats(3, 4)),
    "folded": ArrayTensor(floats(1, 1, 2, 1, 1, 1, 3, 1, seed=4)),
}
STREAMS = {"clicks/0": 0, "clicks/3": (1 << 64) - 1, "поток": 12}

_NAMES = ("B", "a", "four", "twelve bytes", "a" * 300, "é")

SEGMENTS: dict[str, tuple[SegmentHeader, Delta]] = {
    "empty_epoch": (header(), Delta()),
    "int64_keys": (header(2), Delta((INT64,))),
    "string_keys": (header(3, event_time=UNKNOWN_TIME), Delta((STRING,))),
    "row_numbers": (header(4, term=9), Delta((ROW_NUMBERS,))),
    "deleted_keys": (
        header(),
        Delta((table("a", int_keys(), 4, int_keys(-3, 3)), table("b", strings(), 4, strings(b"", b"x")))),
    ),
    "default_rows": (
        header(),
        Delta((table("a", int_keys(), 2, default_numbers=np.array([2], np.uint32), default_rows=floats(1, 2)),)),
    ),
    "variables": (header(), Delta((), dict(VARIABLES))),
    "streams": (header(), Delta((), {}, dict(STREAMS))),
    "names": (header(), Delta(tuple(table(name, int_keys(1), 1) for name in _NAMES))),
    "rows_and_variables": (
        header(),
        Delta(
            (table("a", int_keys(1), 2, key_kind="row_number"),),
            {"b": ArrayTensor(floats(2)), "c": ArrayTensor(floats(3))},
        ),
    ),
    "several_blocks": (
        header(),
        Delta((), {"table": ArrayTensor((np.arange(20_000) % 7).astype(np.float32).reshape(100, 200))}),
    ),
    "compacted": (header(3, 7, chain=hashlib.sha256(b"7").digest()), Delta((INT64,))),
    "chain_hashes": (
        header(3, 5, chain=hashlib.sha256(b"5").digest()),
        Delta((INT64,), {}, {}, tuple(hashlib.sha256(bytes([epoch])).digest() for epoch in (3, 4))),
    ),
    "compatible_features": (header(compatible=1 << 63 | 1), Delta((INT64,))),
    "everything": (header(10**16 - 1, term=10**16 - 1), Delta((INT64, STRING, ROW_NUMBERS), VARIABLES, STREAMS)),
}


# Damaged files


@dataclass
class Damage:
    """A change of a valid segment, and what the error says.

    Attributes
    ----------
    base : str
        The segment that is changed.
    check : int
        The number of the check in docs/delta_format.md that fails.
    mentions : list of str
        Texts in the error.
    change : callable
        Changes the bytes in place, or returns others.
    seal : str
        What is computed again afterwards: `all`, `blocks` (but not the hash), `header` (only its checksum), `nothing`.
    """

    base: str
    check: int
    mentions: list[str]
    change: Callable[[bytearray], bytearray | None]
    seal: str = "all"


def put(offset: int, layout: str, *values: Any) -> Callable[[bytearray], None]:
    """Return a change that writes values at an offset."""
    return lambda raw: struct.pack_into(layout, raw, offset, *values)


def put_after(text: bytes, distance: int, layout: str, *values: Any) -> Callable[[bytearray], None]:
    """Return a change that writes values at a distance from the last place of some bytes before the checksums."""

    def change(raw: bytearray) -> None:
        struct.pack_into(layout, raw, raw.rindex(text, 0, _checksums_offset(raw)) + distance, *values)

    return change


def swap(text: bytes, other: bytes) -> Callable[[bytearray], None]:
    """Return a change that replaces bytes, which occur once before the checksums, by as many others."""

    def change(raw: bytearray) -> None:
        assert raw.count(text, 0, _checksums_offset(raw)) == 1
        place = raw.index(text)
        raw[place : place + len(text)] = other

    return change


def _checksums_offset(raw: bytearray) -> int:
    return struct.unpack_from("<Q", raw, 176)[0]


def seal(raw: bytearray, what: str = "all") -> bytes:
    """Compute checksums and hash again, so that only the checks after them can fail."""
    if what == "nothing":
        return bytes(raw)
    end = min(_checksums_offset(raw), len(raw))
    if what in {"all", "blocks"}:
        for number, begin in enumerate(range(HEADER_BYTES, end, BLOCK_BYTES)):
            crc = checksum.extend(0, bytes(raw[begin : min(begin + BLOCK_BYTES, end)]))
            struct.pack_into("<I", raw, end + 4 * number, crc)
    struct.pack_into("<I", raw, 252, checksum.extend(0, bytes(raw[:252])))
    if what == "all":
        raw[-32:] = hashlib.sha256(raw[:-32]).digest()
    return bytes(raw)


def _resize(raw: bytearray, place: str, count: int) -> bytearray:
    """Add `count` zeros before or after the directory, or remove the last bytes of the directory if it is negative."""
    begin, size, end = struct.unpack_from("<QQQ", raw, 160)
    before = place == "before"
    struct.pack_into("<QQQ", raw, 160, begin + count * before, size + count * (not before), end + count)
    struct.pack_into("<Q", raw, 16, len(raw) + count)
    if before:
        return raw[:begin] + bytes(count) + raw[begin:]
    return raw[: end + min(0, count)] + bytes(max(0, count)) + raw[end:]


_INT, _STRING, _ROW, _VARIABLE = b"user/embedding", b"item/embedding", b"category/embedding", b"dense/kernel"
# From the bytes of a name of 14 or 18, and of 12, to the fields after it.
_FIELDS, _VARIABLE_FIELDS = 20, 12

DAMAGES: dict[str, Damage] = {
    # The header
    "short": Damage("int64_keys", 1, ["255 bytes"], lambda raw: raw[:255], "nothing"),
    "empty": Damage("int64_keys", 1, ["0 bytes"], lambda raw: raw[:0], "nothing"),
    "magic": Damage("int64_keys", 1, ["begins with"], put(0, "8s", b"RECEMB\r\n")),
    "version_2": Damage("int64_keys", 1, ["version 2"], put(8, "<I", 2), "nothing"),
    "version_0": Damage("int64_keys", 1, ["version 0"], put(8, "<I", 0)),
    "header_checksum": Damage("int64_keys", 1, ["header checksum"], put(80, "<q", 0), "nothing"),
    "incompatible": Damage("int64_keys", 1, ["incompatible", "0x4"], put(24, "<Q", 4)),
    "header_size": Damage("int64_keys", 1, ["header_size 264"], put(12, "<I", 264)),
    "truncated": Damage("int64_keys", 1, ["file_size"], lambda raw: raw[:-1], "nothing"),
    "extended": Damage("int64_keys", 1, ["file_size"], lambda raw: raw + bytes(1), "nothing"),
    "file_size": Damage("int64_keys", 1, ["file_size"], put(16, "<Q", 1 << 63)),
    "block_size": Damage("int64_keys", 1, ["block_size 4096"], put(184, "<I", 4096), "header"),
    "directory_offset": Damage("int64_keys", 1, ["directory_offset 264"], put(160, "<Q", 264), "header"),
    "directory_in_header": Damage("empty_epoch", 1, ["directory_offset 192"], put(160, "<Q", 192), "header"),
    "directory_offset_large": Damage("int64_keys", 1, ["directory"], put(160, "<QQQ", (1 << 64) - 64, 64, 0), "header"),
    "directory_size": Damage("int64_keys", 1, ["directory_size 20"], put(168, "<Q", 20), "header"),
    "directory_size_small": Damage("int64_keys", 1, ["directory_size 8"], put(168, "<Q", 8), "header"),
    "directory_size_large": Damage("int64_keys", 1, ["directory"], put(168, "<Q", (1 << 64) - 8), "header"),
    "checksums_offset": Damage("int64_keys", 1, ["checksums_offset 512"], put(176, "<Q", 512), "header"),
    "first_epoch_0": Damage("empty_epoch", 1, ["first_epoch 0"], put(56, "<Q", 0)),
    "first_epoch_large": Damage("everything", 1, ["first_epoch"], put(56, "<QQ", 10**16, 10**16)),
    "last_epoch": Damage("int64_keys", 1, ["last_epoch 1"], put(64, "<Q", 1)),
    "last_epoch_large": Damage("compacted", 1, ["last_epoch"], put(64, "<Q", 10**16)),
    "term_0": Damage("int64_keys", 1, ["term 0"], put(72, "<Q", 0)),
    "term_large": Damage("int64_keys", 1, ["term"], put(72, "<Q", 10**16)),
    "chain_of_one_epoch": Damage("int64_keys", 1, ["chain"], put(128, "<Q", 1)),
    "no_chain": Damage("compacted", 1, ["chain"], put(128, "32s", b"")),
    "reserved_header": Damage("int64_keys", 1, ["reserved"], put(251, "B", 1)),
    # Blocks and hash
    "block_0": Damage("int64_keys", 2, ["block 0"], put(256, "B", 1), "nothing"),
    "block_1": Damage("several_blocks", 2, ["block 1"], put(256 + BLOCK_BYTES, "B", 1), "nothing"),
    "block_checksum": Damage("empty_epoch", 2, ["block 0"], put(272, "<I", 1), "nothing"),
    "hash": Damage("empty_epoch", 3, ["hash"], put(276, "B", 1), "nothing"),
    "hash_of_altered_header": Damage("int64_keys", 3, ["hash"], put(80, "<q", 0), "blocks"),
    # The directory
    "reserved_count": Damage("empty_epoch", 4, ["directory", "reserved"], put(268, "<I", 1)),
    "more_records": Damage("int64_keys", 4, ["directory"], put_after(_INT, -20, "<I", 2)),
    "many_records": Damage("empty_epoch", 4, ["directory"], put(256, "<I", (1 << 32) - 1)),
    "fewer_records": Damage("int64_keys", 4, ["directory"], put_after(_INT, -20, "<I", 0)),
    "directory_cut": Damage("int64_keys", 4, ["directory"], lambda raw: _resize(raw, "after", -8)),
    "directory_extended": Damage("int64_keys", 4, ["directory"], lambda raw: _resize(raw, "after", 8)),
    "directory_late": Damage("int64_keys", 4, ["directory_offset"], lambda raw: _resize(raw, "before", 64)),
    "chain_hashes_cut": Damage("chain_hashes", 4, ["chain hashes of 2"], lambda raw: _resize(raw, "after", -8)),
    "chain_hashes_extended": Damage("chain_hashes", 4, ["directory"], lambda raw: _resize(raw, "after", 32)),
    "name_empty": Damage("int64_keys", 4, ["name", "0 bytes"], put_after(_INT, -4, "<I", 0)),
    "name_long": Damage("int64_keys", 4, ["name", "65536 bytes"], put_after(_INT, -4, "<I", 65_536)),
    "name_not_utf8": Damage("int64_keys", 4, ["UTF-8"], put_after(_INT, 3, "B", 0xFF)),
    "name_surrogate": Damage("int64_keys", 4, ["UTF-8"], put_after(_INT, 3, "3s", b"\xed\xa0\x80")),
    "name_overlong": Damage("int64_keys", 4, ["UTF-8"], put_after(_INT, 3, "2s", b"\xc0\xaf")),
    "name_padding": Damage("int64_keys", 4, ["user/embedding"], put_after(_INT, 14, "B", 1)),
    "tables_out_of_order": Damage("deleted_keys", 4, ["'b'"], swap(b"\1\0\0\0a\0", b"\1\0\0\0c\0")),
    "table_twice": Damage("deleted_keys", 4, ["'a'"], swap(b"\1\0\0\0b\0", b"\1\0\0\0a\0")),
    "variable_twice": Damage("rows_and_variables", 4, ["'b'"], swap(b"\1\0\0\0c\0", b"\1\0\0\0b\0")),
    "stream_twice": Damage("streams", 4, ["'clicks/3'"], swap(b"clicks/0", b"clicks/3")),
    "table_and_variable": Damage("rows_and_variables", 4, ["'a'"], swap(b"\1\0\0\0b\0", b"\1\0\0\0a\0")),
    "key_kind": Damage("int64_keys", 4, ["key_kind 3"], put_after(_INT, _FIELDS, "<I", 3)),
    "dim_0": Damage("int64_keys", 4, ["dim 0"], put_after(_INT, _FIELDS + 4, "<I", 0)),
    "dim_large": Damage("int64_keys", 4, ["user/embedding"], put_after(_INT, _FIELDS + 4, "<I", (1 << 32) - 1)),
    "changed_large": Damage("int64_keys", 4, ["user/embedding"], put_after(_INT, _FIELDS + 8, "<Q", (1 << 61) + 5)),
    "string_count_large": Damage("string_keys", 4, ["item/embedding"], put_after(_STRING, 28, "<Q", (1 << 64) - 1)),
    "deleted_large": Damage("int64_keys", 4, ["user/embedding"], put_after(_INT, _FIELDS + 16, "<Q", 1 << 63)),
    "defaults_large": Damage("int64_keys", 4, ["user/embedding"], put_after(_INT, _FIELDS + 24, "<Q", 1 << 62)),
    "no_changes": Damage("int64_keys", 4, ["without changes"], put_after(_INT, _FIELDS + 8, "<QQQ", 0, 0, 0)),
    "row_numbers_deleted": Damage("row_numbers", 4, ["category/embedding"], put_after(_ROW, 28 + 8, "<Q", 1)),
    "row_numbers_defaults": Damage("row_numbers", 4, ["category/embedding"], put_after(_ROW, 28 + 16, "<Q", 1)),
    "table_offset": Damage("int64_keys", 4, ["offset 320"], put_after(_INT, _FIELDS + 32, "<Q", 320)),
    "dtype": Damage("variables", 4, ["dtype 1"], put_after(_VARIABLE, _VARIABLE_FIELDS, "<I", 1)),
    "rank": Damage("variables", 4, ["rank 9"], put_after(_VARIABLE, _VARIABLE_FIELDS + 4, "<I", 9)),
    "shape_0": Damage("variables", 4, ["shape"], put_after(_VARIABLE, _VARIABLE_FIELDS + 8, "<Q", 0)),
    "shape_large": Damage("variables", 4, ["dense/kernel"], put_after(_VARIABLE, 20, "<QQ", 1 << 32, 1 << 32)),
    "variable_offset": Damage("variables", 4, ["offset 384"], put_after(_VARIABLE, 36, "<Q", 384)),
    "strings_begin": Damage("string_keys", 4, ["strings"], put(256, "<Q", 1)),
    "strings_descend": Damage("string_keys", 4, ["strings"], put(256 + 16, "<Q", 9)),
    "strings_end": Damage("string_keys", 4, ["strings"], put(256 + 56, "<Q", 1 << 63)),
    # Zeros and order
    "padding": Damage("int64_keys", 5, ["zeros"], put(256 + 40, "B", 1)),
    "padding_before_directory": Damage("row_numbers", 5, ["zeros"], put(256 + 64 + 60, "B", 1)),
    "keys_descend": Damage("int64_keys", 5, ["user/embedding", "ascending"], put(256 + 16, "<q", -2)),
    "key_twice": Damage("int64_keys", 5, ["user/embedding", "ascending"], put(256 + 16, "<q", -1)),
    "deleted_descend": Damage("int64_keys", 5, ["user/embedding", "ascending"], put(384, "<qq", 5, 1)),
    "key_changed_and_deleted": Damage("int64_keys", 5, ["user/embedding", "deleted"], put(384, "<qq", 1, 7)),
    "defaults_descend": Damage("int64_keys", 5, ["user/embedding", "ascending"], put(448, "<II", 3, 0)),
    "default_twice": Damage("int64_keys", 5, ["user/embedding", "ascending"], put(448, "<II", 3, 3)),
    "row_number_negative": Damage("row_numbers", 5, ["category/embedding", "-1"], put(256, "<q", -1)),
    "strings_out_of_order": Damage("string_keys", 5, ["item/embedding", "ascending"], swap(b"\0aa\0ab", b"\0ab\0aa")),
    "string_twice": Damage("string_keys", 5, ["item/embedding", "ascending"], put(256 + 16, "<Q", 0)),
    "string_changed_and_deleted": Damage("string_keys", 5, ["item/embedding", "deleted"], swap(b"bbb", b"abb")),
}


def write_segments(folder: Path) -> None:
    """Write all segments, valid and damaged ones, into the folders `segments` and `damaged`."""
    for name, (fields, delta) in SEGMENTS.items():
        path = folder / "segments" / f"{name}.delta"
        write_segment(path, fields, delta)
    for name, damage in DAMAGES.items():
        raw = bytearray((folder / "segments" / f"{damage.base}.delta").read_bytes())
        changed = damage.change(raw)
        (folder / "damaged" / f"{name}.delta").write_bytes(seal(raw if changed is None else changed, damage.seal))
