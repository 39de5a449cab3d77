# SPDX-License-Identifier: Apache-2.0
"""Test that the reader finds damage; test_table_file.py tests what it reads."""

import os
from pathlib import Path

import numpy as np
import pytest

from graph_tools.bundle import checksum
from graph_tools.errors import UnreadableError
from graph_tools.store import TableReader, read_header
from graph_tools.store.layout import BUCKET_BYTES, HEADER_BYTES
from helpers.models.embedding_tables import altered, spec_of, written

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "table"


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="No such file"):
        TableReader(tmp_path / "missing.emb")
    with pytest.raises(UnreadableError, match="directory"):
        read_header(tmp_path)


def test_truncated_file(tmp_path: Path) -> None:
    file = written(tmp_path, spec_of("int64", 101))
    file.chmod(0o644)
    os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(UnreadableError, match="truncated"):
        TableReader(file)
    os.truncate(file, 0)
    with pytest.raises(UnreadableError, match="0 bytes"):
        TableReader(file)


@pytest.mark.parametrize("section", ["row_data", "index", "key_offsets", "key_bytes"])
def test_every_section_is_checked(tmp_path: Path, section: str) -> None:
    file = written(tmp_path, spec_of("string", 101))
    place = read_header(file).sections()[section]
    for offset in (place.offset, place.end - 1):
        byte = file.read_bytes()[offset]
        reader = TableReader(altered(file, offset, bytes([byte ^ 1])))
        with pytest.raises(UnreadableError, match=f"of block 0 .*{section}"):
            reader.check()


def test_damaged_checksums_are_detected(tmp_path: Path) -> None:
    file = written(tmp_path, spec_of("int64", 101))
    with pytest.raises(UnreadableError, match="of checksums"):
        TableReader(altered(file, file.stat().st_size - 1, b"\xff")).check()


def test_a_damaged_block_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, spec_of("direct", 4000, dim=16))
    assert read_header(file).blocks == 4
    with pytest.raises(UnreadableError, match=r"of block 3 \(row_data\)"):
        TableReader(altered(file, HEADER_BYTES + 3 * 65536, b"\xff")).check()


def test_files_of_version_1_are_read() -> None:
    rows = (np.arange(40)[:, None] + np.arange(4) / 8).astype(np.float32)
    integers, strings = (TableReader(GOLDEN / f"version_1_{kind}.emb") for kind in ("int64", "string"))
    for reader in (integers, strings):
        reader.check()
        assert reader.header.version == 1
    keys = np.arange(40) * 37 - 100
    np.testing.assert_array_equal(integers.lookup(keys), rows)
    np.testing.assert_array_equal(integers.lookup(np.array([-101])), -rows[2:3])
    texts = np.array([f"key {number}".encode() for number in range(40)], object)
    np.testing.assert_allclose(strings.lookup(texts), rows, rtol=1 / 256)


def test_damage_in_files_of_version_1_is_found(tmp_path: Path) -> None:
    copy = tmp_path / "copy.emb"
    copy.write_bytes((GOLDEN / "version_1_int64.emb").read_bytes())
    place = read_header(copy).index.offset
    with pytest.raises(UnreadableError, match="of index"):
        TableReader(altered(copy, place, b"\xff")).check()


def forged(file: Path, section: str, place: int, value: bytes) -> Path:
    """Alter a section and make all checksums right again; the file has fewer bytes than a block."""
    header = read_header(file)
    copy = altered(file, header.sections()[section].offset + place, value)
    sums = header.checksums
    crc = checksum.extend(0, copy.read_bytes()[HEADER_BYTES : sums.offset]).to_bytes(4, "little")
    return altered(altered(copy, sums.offset, crc), 208, checksum.extend(0, crc).to_bytes(4, "little"), recount=True)


@pytest.mark.parametrize(
    ("section", "place", "value", "found"),
    [
        ("index", 60, b"\6", "bucket of 6 keys"),
        ("index", -4, b"\5", "last bucket that is full"),
        ("index", 40, b"\xff\xff", "row that does not exist"),
        ("key_offsets", 0, b"\1", "out of order"),
        ("key_offsets", 8, b"\xff\xff", "out of order"),
        ("key_offsets", -8, b"\xff\xff\xff", "out of order"),
    ],
)
def test_a_file_with_forged_content_is_detected(
    tmp_path: Path, section: str, place: int, value: bytes, found: str
) -> None:
    file = written(tmp_path, spec_of("string", 101))
    header = read_header(file)
    if place == 40:  # the first row number of a bucket with a key
        raw = file.read_bytes()[header.index.offset : header.index.end]
        place += next(begin for begin in range(0, len(raw), BUCKET_BYTES) if raw[begin + 60])
    where = place % header.sections()[section].size
    with pytest.raises(UnreadableError, match=found):
        TableReader(forged(file, section, where, value)).check()


def test_forged_row_type_and_newer_version(tmp_path: Path) -> None:
    file = written(tmp_path, spec_of("direct", 11))
    with pytest.raises(UnreadableError, match="version 9"):
        TableReader(altered(file, 8, b"\x09"))
    with pytest.raises(UnreadableError, match="row stride"):
        TableReader(altered(file, 40, b"\xff", recount=True))


def test_keys_are_given_back(tmp_path: Path) -> None:
    spec = TableReader(written(tmp_path, spec_of("string", 101))).spec()
    assert spec.keys is not None
    assert spec.keys.read().tolist() == spec_of("string", 101).keys.read().tolist()
    pieces = list(spec.keys.chunks(10))
    assert [len(piece) for piece in pieces] == [10] * 10 + [1]
    spec = TableReader(written(tmp_path, spec_of("int64", 101))).spec()
    assert spec.keys is not None
    assert spec.row_numbers is not None
    order = np.argsort(spec.row_numbers.read())
    np.testing.assert_array_equal(spec.keys.read()[order], spec_of("int64", 101).keys.read())  # type: ignore[union-attr]
    assert all(len(chunk) <= 7 for chunk in spec.keys.chunks(7))
