# SPDX-License-Identifier: Apache-2.0
"""Test that segments are read as the golden vectors say, and that damaged ones are refused."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.store.delta import Delta, TableDelta, no_keys
from graph_tools.store.segment import Segment
from graph_tools.store.segment_writer import write_segment
from graph_tools.tensors import ArrayTensor
from helpers.graph_tools.delta_segments import INT64, SEGMENTS, floats, header, int_keys, seal, strings, table
from helpers.graph_tools.delta_vectors import GOLDEN, array_data, key_data, write_vectors

EXPECTED = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_golden_vectors_are_what_the_writer_writes(tmp_path: Path) -> None:
    write_vectors(tmp_path / "delta")
    assert _files(tmp_path / "delta") == _files(GOLDEN)


@pytest.mark.parametrize("name", EXPECTED["segments"])
def test_golden_segment_has_the_expected_content(name: str) -> None:
    expected, segment = EXPECTED["segments"][name], Segment(GOLDEN / "segments" / f"{name}.delta")
    fields = segment.header
    assert (fields.lineage.hex(), fields.previous.hex(), segment.chain.hex()) == (
        expected["lineage"],
        expected["previous"],
        expected["chain"],
    )
    for field in ("first_epoch", "last_epoch", "term", "event_time", "write_time"):
        assert getattr(fields, field) == expected[field]
    assert [
        {
            "name": entry.name,
            "key_kind": entry.key_kind,
            "dim": entry.dim,
            "changed": key_data(entry.changed),
            "rows": array_data(entry.rows.read()),
            "deleted": key_data(entry.deleted),
            "default_numbers": entry.default_numbers.tolist(),
            "default_rows": array_data(entry.default_rows),
        }
        for entry in segment.delta.tables
    ] == expected["tables"]
    assert [
        {"name": key, "shape": list(tensor.shape), "data": array_data(tensor.read())}
        for key, tensor in segment.delta.variables.items()
    ] == expected["variables"]
    assert [{"name": key, "position": at} for key, at in segment.delta.streams.items()] == expected["streams"]
    assert [chain.hex() for chain in segment.delta.chains] == expected["chains"]


@pytest.mark.parametrize("name", EXPECTED["damaged"])
def test_golden_damaged_segment_is_refused(name: str) -> None:
    path = GOLDEN / "damaged" / f"{name}.delta"
    with pytest.raises(UnreadableError) as error:
        Segment(path)
    for text in (str(path), "expected", *EXPECTED["damaged"][name]["mentions"]):
        assert text in str(error.value)


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="No such file"):
        Segment(tmp_path / "absent.delta")
    with pytest.raises(UnreadableError, match="not a file"):
        Segment(tmp_path)


# Fuzzing: each file is small, so that every byte is reached.

_FUZZED = ("string_keys", "everything", "compacted")
_QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _write(path: Path, raw: bytes) -> Path:
    path.unlink(missing_ok=True)
    path.write_bytes(raw)
    return path


@_QUICK
@given(name=st.sampled_from(_FUZZED), data=st.data())
def test_altered_or_cut_segment_is_refused(tmp_path: Path, name: str, data: st.DataObject) -> None:
    raw = bytearray((GOLDEN / "segments" / f"{name}.delta").read_bytes())
    place = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        raw[place] ^= data.draw(st.integers(1, 255))
    else:
        del raw[place:]
    with pytest.raises(UnreadableError):
        Segment(_write(tmp_path / "a.delta", bytes(raw)))


@_QUICK
@given(name=st.sampled_from(_FUZZED), data=st.data())
def test_altered_segment_with_right_checksums_is_refused_or_canonical(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    raw = bytearray((GOLDEN / "segments" / f"{name}.delta").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(8, len(raw) - 1))
        value = data.draw(st.sampled_from([0, 1, 7, 255, 1 << 31, (1 << 63) - 1, (1 << 64) - 1]) | st.integers(0, 255))
        size = data.draw(st.sampled_from([1, 8]))
        piece = struct.pack("<Q", value)[:size]
        raw[place : place + len(piece)] = piece[: len(raw) - place]
    try:
        sealed = seal(raw)
    except struct.error:
        return
    try:
        segment = Segment(_write(tmp_path / "a.delta", sealed))
    except UnreadableError:
        return
    (tmp_path / "b.delta").unlink(missing_ok=True)
    write_segment(tmp_path / "b.delta", segment.header, segment.delta)
    assert (tmp_path / "b.delta").read_bytes() == sealed


_KEYS = {
    "int64": st.lists(st.integers(-(1 << 63), (1 << 63) - 1), unique=True, max_size=9),
    "row_number": st.lists(st.integers(0, 99), unique=True, max_size=9),
    "string": st.lists(st.binary(max_size=9), unique=True, max_size=9),
}


@st.composite
def _tables(draw: st.DrawFn, name: str) -> TableDelta:
    kind = draw(st.sampled_from(sorted(_KEYS)))
    keys: list[Any] = draw(_KEYS[kind])
    deleted = 0 if kind == "row_number" else draw(st.integers(0, len(keys)))
    dim = draw(st.integers(1, 4))
    numbers = [] if kind == "row_number" else draw(st.lists(st.integers(0, (1 << 32) - 1), unique=True, max_size=3))
    make = strings if kind == "string" else int_keys
    changed = sorted(keys[deleted:])
    rows = draw(arrays.arrays(np.float32, (len(changed), dim), elements=st.floats(width=32)))
    return TableDelta(
        name,
        kind,
        dim,
        make(*changed),
        ArrayTensor(rows),
        make(*sorted(keys[:deleted])),
        np.array(sorted(numbers), np.uint32),
        draw(arrays.arrays(np.float32, (len(numbers), dim), elements=st.floats(width=32))),
    )


@_QUICK
@given(
    tables=st.lists(st.text(min_size=1, max_size=9), unique=True, max_size=4).flatmap(
        lambda names: st.tuples(*map(_tables, names))
    ),
    streams=st.dictionaries(st.text(min_size=1, max_size=9), st.integers(0, (1 << 64) - 1), max_size=3),
)
def test_content_is_read_as_it_was_written_in_any_order(
    tmp_path: Path, tables: tuple[TableDelta, ...], streams: dict[str, int]
) -> None:
    delta = Delta(tables, {" variable": ArrayTensor(floats(2, 3))}, streams)
    for path in (tmp_path / "a.delta", tmp_path / "b.delta"):
        path.unlink(missing_ok=True)
    write_segment(tmp_path / "a.delta", header(), delta)
    read = Segment(tmp_path / "a.delta").delta
    assert read.streams == streams
    found = {entry.name: entry for entry in read.tables}
    assert set(found) == {entry.name for entry in tables if not entry.empty}
    for entry in tables:
        if not entry.empty:
            other = found[entry.name]
            assert key_data(other.changed) == key_data(entry.changed)
            assert key_data(other.deleted) == key_data(entry.deleted)
            assert array_data(other.rows.read()) == array_data(entry.rows.read())
            assert array_data(other.default_rows) == array_data(entry.default_rows)
    write_segment(
        tmp_path / "b.delta", header(), Delta(tables[::-1], dict(delta.variables), dict([*streams.items()][::-1]))
    )
    assert (tmp_path / "b.delta").read_bytes() == (tmp_path / "a.delta").read_bytes()


# The writer


@pytest.mark.parametrize(
    ("delta", "message"),
    [
        (Delta((table("", int_keys(1), 1),)), "a name of 0 bytes"),
        (Delta((table("a" * 65_536, int_keys(1), 1),)), "a name of 65536 bytes"),
        (Delta((), {"a": ArrayTensor(np.zeros(1))}), "float64"),
        (Delta((), {"a": ArrayTensor(np.zeros((0, 1), np.float32))}), "expected float32 with elements"),
        (
            Delta((TableDelta("a", "int64", 2, int_keys(1), ArrayTensor(floats(1, 3)), no_keys("int64")),)),
            r"rows float32\[1, 3\], expected float32\[1, 2\]",
        ),
    ],
)
def test_content_that_does_not_fit_is_refused(tmp_path: Path, delta: Delta, message: str) -> None:
    with pytest.raises(ConversionError, match=message):
        write_segment(tmp_path / "a.delta", header(), delta)
    assert not list(tmp_path.iterdir())


def test_existing_file_is_not_replaced(tmp_path: Path) -> None:
    write_segment(tmp_path / "a.delta", header(), Delta())
    before = (tmp_path / "a.delta").read_bytes()
    with pytest.raises(ConversionError, match="exists"):
        write_segment(tmp_path / "a.delta", header(), Delta((INT64,)))
    assert (tmp_path / "a.delta").read_bytes() == before


def test_golden_names_are_all_tested() -> None:
    assert {path.stem for path in (GOLDEN / "segments").iterdir()} == set(SEGMENTS) == set(EXPECTED["segments"])
    assert {path.stem for path in (GOLDEN / "damaged").iterdir()} == set(EXPECTED["damaged"])
