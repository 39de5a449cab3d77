# SPDX-License-Identifier: Apache-2.0
"""Test that the reader finds damage; test_table_file.py tests what it reads."""

import os
from pathlib import Path

import numpy as np
import pytest

from graph_tools.bundle import checksum
from graph_tools.errors import UnreadableError
from graph_tools.store import TableReader, read_header
from graph_tools.store.layout import BUCKET_BYTES
from helpers.models.embedding_tables import altered, spec_of, written


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
        with pytest.raises(UnreadableError, match=f"of {section}"):
            reader.check()


def forged(file: Path, section: str, place: int, value: bytes) -> Path:
    """Alter a section and make all checksums right again."""
    header = read_header(file)
    where = header.sections()[section]
    copy = altered(file, where.offset + place, value)
    raw = copy.read_bytes()[where.offset : where.end]
    field = 80 + 24 * list(header.sections()).index(section) + 16
    return altered(copy, field, checksum.extend(0, raw).to_bytes(4, "little"), recount=True)


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
