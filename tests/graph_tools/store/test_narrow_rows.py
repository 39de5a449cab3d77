# SPDX-License-Identifier: Apache-2.0
"""Test tables whose rows have different widths: narrow rows are read as vectors with zeros behind them."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graph_tools.bundle import checksum
from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.store import TableReader, TableSpec, write_table
from graph_tools.store.layout import ROW_TYPES, Header, unpack
from graph_tools.store.quantize import decode, encode
from graph_tools.store.row_runs import NarrowRows
from graph_tools.tensors import Array, ArrayTensor
from helpers.models.embedding_tables import INDEX_KINDS, absent_of, present_of, rows_of, spec_of, written

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "table"
COUNT, DIM = 300, 20
NARROW = (NarrowRows(10, 8), NarrowRows(110, 3))


def narrowed(rows: Array) -> Array:
    """Return rows [300, 20] with zeros where narrow rows have nothing."""
    for each in NARROW:
        rows[each.first :, each.dim :] = 0
    return rows


def spec_with_narrow_rows(kind: str, row_type: str = "fp32") -> TableSpec:
    default = ArrayTensor(rows_of(2, DIM, seed=5) + 7)
    spec = spec_of(kind, COUNT, DIM, row_type, absent_key="default", default_rows=default, narrow=NARROW)
    return replace(spec, rows=ArrayTensor(narrowed(rows_of(COUNT, DIM))))


def stored(row_type: str) -> Array:
    """Return what the rows are after they were stored, each with the elements that it has."""
    found, rows = np.zeros((COUNT, DIM), np.float32), narrowed(rows_of(COUNT, DIM))
    for begin, end, dim in ((0, 10, DIM), (10, 110, 8), (110, COUNT, 3)):
        found[begin:end, :dim] = decode(encode(rows[begin:end, :dim], row_type), row_type, dim)
    return found


@pytest.mark.parametrize("row_type", ROW_TYPES)
@pytest.mark.parametrize("kind", INDEX_KINDS)
def test_narrow_rows_are_read_with_zeros(tmp_path: Path, kind: str, row_type: str) -> None:
    file = write_table(tmp_path, spec_with_narrow_rows(kind, row_type))
    whole = write_table(tmp_path, replace(spec_with_narrow_rows(kind, row_type), narrow=()))
    assert file.header.row_data.size < 0.7 * whole.header.row_data.size
    reader = TableReader(file.path)
    reader.check()
    np.testing.assert_array_equal(reader.lookup(present_of(kind, COUNT)), stored(row_type))
    absent = absent_of(kind, COUNT)
    np.testing.assert_array_equal(reader.lookup(absent), TableReader(whole.path).lookup(absent))
    # The same content gives the same bytes.
    (tmp_path / "again").mkdir()
    assert write_table(tmp_path / "again", reader.spec()).sha256 == file.sha256


def test_the_header_names_widths_and_places() -> None:
    """The widths are behind `block_size`; runs begin at multiples of 64."""
    header = Header(0, COUNT, 2, DIM, "fp32", 80, "direct", "default", 0, 0, None, narrow=NARROW)
    runs = [(run.first, run.end, run.dim, run.stride, run.offset) for run in header.runs]
    assert runs == [(0, 10, 20, 80, 0), (10, 110, 8, 32, 832), (110, 300, 3, 12, 4032), (300, 302, 20, 80, 6336)]


def test_features_and_widths_are_in_the_header(tmp_path: Path) -> None:
    file = write_table(tmp_path, spec_with_narrow_rows("direct"))
    raw = file.path.read_bytes()
    assert struct.unpack_from("<Q", raw, 176) == (1,)
    assert struct.unpack_from("<8I", raw, 220) == (10, 8, 110, 3, 0, 0, 0, 0)

    def parsed(place: int, value: bytes) -> Header:
        changed = bytearray(raw[:256])
        changed[place : place + len(value)] = value
        changed[252:] = checksum.extend(0, bytes(changed[:252])).to_bytes(4, "little")
        return unpack(bytes(changed), len(raw), "t.emb")

    for place, value, message in (
        (176, 3, "incompatible features 0x3"),
        (220, 300, "rows of width 8 from row 300 of 300 on"),
        (224, 20, "widths that descend from 20"),
        (224, 0, "no widths of narrow rows"),
        (228, 10, "ascending rows"),
        (232, 8, "widths that descend"),
        (232, 2, "row_data of"),
        (236, 1, "reserved bytes"),
    ):
        with pytest.raises(UnreadableError, match=message):
            parsed(place, struct.pack("<I", value))


def test_elements_behind_narrow_rows_must_be_zeros(tmp_path: Path) -> None:
    rows = narrowed(rows_of(COUNT, DIM))
    rows[200, 5] = 1
    with pytest.raises(ConversionError, match="a row from 110 on has elements behind the first 3 that are not zero"):
        write_table(tmp_path, replace(spec_with_narrow_rows("int64"), rows=ArrayTensor(rows)))
    wrong = replace(spec_with_narrow_rows("int64"), narrow=(NarrowRows(5, 3), NarrowRows(5, 2)))
    with pytest.raises(ConversionError, match="rows of width 2 from row 5 of 300 on"):
        write_table(tmp_path, wrong)
    five = tuple(NarrowRows(place, 10 - place) for place in range(5))
    with pytest.raises(ConversionError, match="5 widths of narrow rows, expected at most 4"):
        write_table(tmp_path, replace(spec_with_narrow_rows("int64"), narrow=five))


def golden_spec(kind: str, row_type: str) -> TableSpec:
    """Return the content of the golden files, which C++ tests know as well: 24 rows of 12, 5 and 2 elements."""
    numbers = np.arange(24)[:, None] * 31 + np.arange(12) * 7
    rows = ((numbers % 19 - 9) / 2).astype(np.float32)
    rows[4:, 5:] = rows[14:, 2:] = 0
    keys = np.array([b"key %d" % number for number in range(24)], object) if kind == "string" else np.arange(24) * 5 - 9
    narrow = (NarrowRows(4, 5), NarrowRows(14, 2))
    default = ArrayTensor(np.full((1, 12), -2, np.float32))
    return TableSpec(12, ArrayTensor(rows), row_type, ArrayTensor(keys), None, default, "default", narrow=narrow)


@pytest.mark.parametrize(("kind", "row_type"), [("int64", "bf16"), ("string", "int8")])
def test_golden_files_are_what_is_written(tmp_path: Path, kind: str, row_type: str) -> None:
    golden = GOLDEN / f"narrow_{row_type}_{kind}.emb"
    assert written(tmp_path, golden_spec(kind, row_type)).read_bytes() == golden.read_bytes()
    reader = TableReader(golden)
    reader.check()
    expected = golden_spec(kind, row_type).rows.read()
    np.testing.assert_allclose(reader.rows(np.arange(24)), expected, atol=0 if row_type == "bf16" else 0.02)
