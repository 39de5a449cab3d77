# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import UnreadableError
from graph_tools.readers import byte_stream

DATA = b"".join(b"%d\n" % (i * i) for i in range(20_000))


@pytest.mark.parametrize("block", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_blocks_are_the_whole_file(tmp_path: Path, compression: str, block: int) -> None:
    data = DATA[: 3000 if block < 10 else None]
    stored = {"none": data, "gzip": gzip.compress(data), "zlib": zlib.compress(data)}[compression]
    path = tmp_path / "file"
    path.write_bytes(stored)
    assert byte_stream.compression_of(stored[:2]) == compression
    blocks = list(byte_stream.byte_blocks(path, compression, block))
    assert b"".join(blocks) == data
    assert max(map(len, blocks)) <= block


def test_highly_compressed_data_is_read_in_small_blocks(tmp_path: Path) -> None:
    path = tmp_path / "zeros"
    path.write_bytes(gzip.compress(bytes(30_000_000)))
    sizes = [len(block) for block in byte_stream.byte_blocks(path, "gzip", 1 << 16)]
    assert sum(sizes) == 30_000_000
    assert max(sizes) <= 1 << 16


def test_several_gzip_members_with_zeros_between(tmp_path: Path) -> None:
    path = tmp_path / "members"
    path.write_bytes(gzip.compress(b"one") + gzip.compress(b"two") + bytes(9) + gzip.compress(b"three") + bytes(5))
    for block in (2, 1000):
        assert b"".join(byte_stream.byte_blocks(path, "gzip", block)) == b"onetwothree"


@pytest.mark.parametrize("cut", [3, 12, 500, -1])
def test_truncated_gzip(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(DATA)[:cut])
    with pytest.raises(UnreadableError, match=r"cut\.gz: the gzip data ends too early, expected complete data"):
        list(byte_stream.byte_blocks(path, "gzip"))


def test_damaged_gzip(tmp_path: Path) -> None:
    stored = bytearray(gzip.compress(DATA))
    stored[-6] ^= 1
    path = tmp_path / "bad.gz"
    path.write_bytes(stored)
    with pytest.raises(UnreadableError, match=r"bad\.gz: damaged gzip data"):
        list(byte_stream.byte_blocks(path, "gzip"))


@pytest.mark.parametrize("block", [5, 1 << 16])
def test_lines(tmp_path: Path, block: int) -> None:
    path = tmp_path / "lines"
    path.write_bytes(DATA[:4000].rpartition(b"\n")[0] + b"\n")
    blocks = list(byte_stream.line_blocks(path, "none", block))
    assert b"".join(blocks) == path.read_bytes()
    assert all(each.endswith(b"\n") for each in blocks)
    path.write_bytes(b"one\ntw")
    with pytest.raises(UnreadableError, match="ends with b'tw', expected every line to end"):
        list(byte_stream.line_blocks(path, "none", block))


def test_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"head" + bytes(range(60)) + b"\n")
    for size in (1, 3, 7, 1000):
        monkeypatch.setattr(byte_stream.byte_blocks, "__defaults__", ("none", size))
        blocks = list(byte_stream.record_blocks(path, "none", 4, 6))
        assert b"".join(blocks) == bytes(range(60))
        assert all(len(each) % 6 == 0 for each in blocks)
    with pytest.raises(UnreadableError, match="5 bytes after the last record, expected records of 7 bytes"):
        list(byte_stream.record_blocks(path, "none", 4, 7))


def test_raw_file(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    array = np.arange(60, dtype="<f4").reshape(20, 3)
    path.write_bytes(array.tobytes())
    tensor = byte_stream.RawFileTensor(path, np.dtype("<f4"), (3,))
    assert tensor.shape == (20, 3)
    np.testing.assert_array_equal(tensor.read(), array)
    chunks = list(tensor.chunks(7))
    assert [len(chunk) for chunk in chunks] == [7, 7, 6]
    np.testing.assert_array_equal(np.concatenate(chunks), array)
    with pytest.raises(UnreadableError, match=r"raw: 240 bytes, expected a multiple of 28 \(7 x float32\)"):
        byte_stream.RawFileTensor(path, np.dtype("<f4"), (7,))
    path.write_bytes(array.tobytes()[:100])
    with pytest.raises(UnreadableError, match="became shorter while it was read"):
        tensor.read()


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="gone: does not exist, expected a file"):
        byte_stream.RawFileTensor(tmp_path / "gone", np.dtype("<f4"))
    with pytest.raises(UnreadableError, match="gone: No such file or directory"):
        list(byte_stream.byte_blocks(tmp_path / "gone"))
    with pytest.raises(UnreadableError, match="not a file, expected a file"):
        byte_stream.file_size(tmp_path)
