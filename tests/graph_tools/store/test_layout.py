# SPDX-License-Identifier: Apache-2.0
"""Test the bytes of the header, and that wrong headers are refused."""

import struct
from dataclasses import replace

import pytest

from graph_tools.bundle import checksum
from graph_tools.errors import UnreadableError
from graph_tools.store.layout import HEADER_BYTES, Header, Section, unpack
from graph_tools.store.row_sizes import row_size, row_stride

#: The file has 5312 bytes before its checksums.
HEADER = Header(
    file_size=5316,
    rows=20,
    default_rows=2,
    dim=16,
    row_type="int8",
    row_stride=20,
    index_kind="string",
    absent_key="default",
    home_buckets=6,
    buckets=7,
    row_data=Section(4096, 440),
    index=Section(4544, 448),
    key_offsets=Section(4992, 168),
    key_bytes=Section(5184, 100),
    checksums=Section(5312, 4, 0x01020304),
    compatible=6,
)
HEADER_1 = replace(
    HEADER,
    version=1,
    file_size=8192,
    row_data=Section(4096, 440, 0x01020304),
    index=Section(4544, 448, 5),
    key_offsets=Section(4992, 168, 6),
    key_bytes=Section(5184, 100, 7),
    checksums=Section(),
    compatible=0,
)


def fields_before_features(header: Header) -> bytes:
    fields = b"RECEMB\r\n" + struct.pack("<II", header.version, 256) + struct.pack("<QQQ", header.file_size, 20, 2)
    fields += struct.pack("<IIIIII", 16, 3, 20, 2, 2, 0) + struct.pack("<QQ", 6, 7)
    for place, section in enumerate(((4096, 440), (4544, 448), (4992, 168), (5184, 100))):
        fields += struct.pack("<QQII", *section, (0x01020304, 5, 6, 7)[place] if header.version == 1 else 0, 0)
    assert len(fields) == 176
    return fields


def test_header_has_the_documented_bytes() -> None:
    fields = fields_before_features(HEADER) + struct.pack("<QQ", 0, 6)
    fields += struct.pack("<QQII", 5312, 4, 0x01020304, 0) + struct.pack("<I", 65536)
    fields = fields.ljust(252, b"\0")
    assert HEADER.pack() == fields + struct.pack("<I", checksum.extend(0, fields))


def test_header_of_version_1_is_read() -> None:
    fields = fields_before_features(HEADER_1).ljust(252, b"\0")
    assert unpack(fields + struct.pack("<I", checksum.extend(0, fields)), 8192, "t.emb") == HEADER_1


def test_header_is_read_as_it_was_written() -> None:
    assert unpack(HEADER.pack(), 5316, "t.emb") == HEADER


def patched(place: int, value: bytes) -> bytes:
    raw = bytearray(HEADER.pack())
    raw[place : place + len(value)] = value
    raw[252:] = checksum.extend(0, bytes(raw[:252])).to_bytes(4, "little")
    return bytes(raw)


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (HEADER.pack()[:100], "100 bytes"),
        (patched(0, b"GGUF"), "begins with"),
        (patched(8, b"\3"), "version 3"),
        (HEADER.pack()[:30] + b"\xff" + HEADER.pack()[31:], "checksum"),
        (patched(12, b"\0\2"), "header size"),
        (patched(60, b"\1"), "reserved"),
        (patched(220, b"\1"), "reserved"),
        (patched(100, b"\1"), "reserved"),
        (patched(96, b"\1"), "reserved"),
        (patched(212, b"\1"), "reserved"),
        (patched(176, b"\x10"), "incompatible features 0x10"),
        (patched(217, b"\2"), "block_size 66048"),
        (patched(16, struct.pack("<Q", 5317)), "5316 bytes, expected 5317"),
        (patched(44, b"\5"), "row_type 5"),
        (patched(52, b"\3"), "index_kind 3"),
        (patched(56, b"\3"), "absent_key 3"),
    ],
)
def test_damaged_header_is_refused_by_name(raw: bytes, found: str) -> None:
    with pytest.raises(UnreadableError, match=f"t.emb: .*{found}"):
        unpack(raw, 5316, "t.emb")


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (replace(HEADER, dim=0), "dim 0"),
        (replace(HEADER, rows=(1 << 32) - 18), "rows of dim"),
        (replace(HEADER, default_rows=0), "default rows"),
        (replace(HEADER, absent_key="zeros"), "default rows"),
        (replace(HEADER, row_stride=16), "row stride 16"),
        (replace(HEADER, row_stride=22), "row stride 22"),
        (replace(HEADER, home_buckets=0), "home buckets"),
        (replace(HEADER, home_buckets=8), "home buckets"),
        (replace(HEADER, index_kind="direct"), "home buckets"),
        (replace(HEADER, index_kind="int64"), "key_offsets"),
        (replace(HEADER, buckets=8), "index of 448"),
        (replace(HEADER, rows=21), "row_data of 440"),
        (replace(HEADER, row_data=Section(4097, 440)), "a multiple of 4096"),
        (replace(HEADER, index=Section(4544 - 64, 448)), "index at"),
        (replace(HEADER, key_bytes=Section(5000, 100)), "key_bytes at"),
        (replace(HEADER, key_bytes=Section(8150, 100)), "key_bytes at"),
        (replace(HEADER, key_bytes=Section(1 << 63, 1 << 63)), "key_bytes at"),
        (replace(HEADER, key_bytes=Section(5184, 0)), "without bytes"),
        (replace(HEADER, key_offsets=Section(64, 168)), "key_offsets at"),
        (replace(HEADER, checksums=Section()), "checksums of 0 bytes at 0, expected 4 bytes at 5312"),
        (replace(HEADER, checksums=Section(5248, 4)), "checksums of 4 bytes at 5248"),
    ],
)
def test_header_that_does_not_fit_itself_is_refused(header: Header, found: str) -> None:
    with pytest.raises(UnreadableError, match=found):
        unpack(header.pack(), 5316, "t.emb")


def test_header_of_an_empty_direct_table() -> None:
    empty = Header(HEADER_BYTES, 0, 0, 1, "fp32", 4, "direct", "error", 0, 0, Section())
    assert unpack(empty.pack(), HEADER_BYTES, "t.emb") == empty


@pytest.mark.parametrize(
    ("row_type", "dim", "size", "stride"),
    [
        ("fp32", 1, 4, 4),
        ("fp32", 16, 64, 64),
        ("fp32", 17, 68, 68),
        ("fp32", 60, 240, 256),
        ("fp32", 13, 52, 64),
        ("fp32", 12, 48, 48),
        ("bf16", 1, 2, 2),
        ("fp16", 3, 6, 8),
        ("fp16", 5, 10, 12),
        ("int8", 1, 5, 8),
        ("int8", 9, 13, 16),
        ("int8", 16, 20, 20),
        ("int8", 24, 28, 32),
        ("int8", 64, 68, 68),
        ("int4", 1, 5, 8),
        ("int4", 5, 7, 8),
        ("int4", 8, 8, 8),
        ("int4", 128, 68, 68),
    ],
)
def test_rows_lie_in_few_cache_lines(row_type: str, dim: int, size: int, stride: int) -> None:
    assert (row_size(row_type, dim), row_stride(row_type, dim)) == (size, stride)
