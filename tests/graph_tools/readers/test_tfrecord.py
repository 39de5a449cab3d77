# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from graph_tools.errors import UnreadableError
from graph_tools.readers import byte_stream, tfrecord
from helpers.models import sparse_files

# Long runs of one length, single ones, empty records, and one that is longer than the blocks below.
RECORDS = [
    *(bytes([i]) * 40 for i in range(90)),
    *(bytes([i]) * i for i in range(30)),
    *(b"ab" for _ in range(20)),
    bytes(range(256)) * 20,
    b"",
    b"",
]


def read(path: Path, compression: str | None = None, verify: bool = True) -> list[bytes]:
    compression = compression or tfrecord.tfrecord_compression(path)
    out: list[bytes] = []
    for batch in tfrecord.record_batches(path, compression, verify):
        assert batch.first == len(out)
        out += [batch.data[b : b + n] for b, n in zip(batch.begin.tolist(), batch.length.tolist(), strict=True)]
    return out


@pytest.mark.parametrize("block", [50, 1000, 1 << 20])
@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str, block: int) -> None:
    monkeypatch.setattr(byte_stream.byte_blocks, "__defaults__", ("none", block))
    path = tmp_path / "records"
    path.write_bytes(sparse_files.compressed(sparse_files.tfrecord(RECORDS), compression))
    assert tfrecord.tfrecord_compression(path) == compression
    assert read(path) == RECORDS


def test_slices(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(sparse_files.tfrecord([b"%d" % i for i in range(10)]))
    (batch,) = tfrecord.record_batches(path, "none", verify=True)
    part = batch.slice(3, 5)
    assert (part.first, len(part), part.data[int(part.begin[0])]) == (3, 2, ord("3"))
    assert len(batch.slice(10, 20)) == len(batch.slice(5, 5)) == len(part.slice(0, 3)) == 0
    assert (part.slice(0, 100).first, len(part.slice(4, 100))) == (3, 1)


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB", "SNAPPY"])
def test_tables_written_by_tensorflow_are_read(tmp_path: Path, compression: str) -> None:
    from tensorflow.python.lib.io import _pywrap_record_io

    path = tmp_path / "records"
    writer = _pywrap_record_io.RecordWriter(str(path), _pywrap_record_io.RecordWriterOptions(compression))
    for record in RECORDS:
        writer.write(record)
    writer.close()
    assert tfrecord.tfrecord_compression(path) == (compression.lower() or "none")
    assert read(path) == RECORDS
    if compression == "SNAPPY":
        stored = bytearray(path.read_bytes())
        stored[len(stored) // 2] ^= 0xFF
        path.write_bytes(stored)
        with pytest.raises(UnreadableError, match="expected snappy-compressed TFRecords"):
            read(path)


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_bytes(b"")
    assert read(path) == []


def test_damage(tmp_path: Path) -> None:
    path = tmp_path / "bad"
    whole = sparse_files.tfrecord(RECORDS)
    start = 9 * 56  # of record 9
    length, data, footer = bytearray(whole), bytearray(whole), bytearray(whole)
    length[start + 1] ^= 1
    path.write_bytes(length)
    with pytest.raises(UnreadableError, match="bad: record 9 has a length with a wrong checksum, expected a TFRecord"):
        read(path)
    data[start + 20] ^= 0x80
    path.write_bytes(data)
    with pytest.raises(UnreadableError, match="bad: record 9 has a wrong checksum, expected intact records"):
        read(path)
    assert len(read(path, verify=False)) == len(RECORDS)
    footer[start + 55] ^= 1
    path.write_bytes(footer)
    with pytest.raises(UnreadableError, match="bad: record 9 has a wrong checksum"):
        read(path)
    path.write_bytes(b"this is no file of records")
    with pytest.raises(UnreadableError, match="record 0 has a length with a wrong checksum"):
        read(path)


@pytest.mark.parametrize("cut", [1, 5, 13, 30, 55])
def test_a_truncated_file_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut"
    path.write_bytes(sparse_files.tfrecord(RECORDS)[: 9 * 56 + cut])
    with pytest.raises(UnreadableError, match=rf"cut: ends within record 9 \({cut} bytes of it\), expected"):
        read(path)
