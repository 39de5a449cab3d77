# SPDX-License-Identifier: Apache-2.0
"""Test that tables are written and read again, and that invalid ones are refused."""

import errno
import hashlib
import os
import stat
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import ConversionError
from graph_tools.store import QuantisedRows, TableReader, TableSpec, table_file, write_table
from graph_tools.store import reader as reader_module
from graph_tools.store.layout import HEADER_BYTES, ROW_TYPES
from graph_tools.store.quantize import decode, encode
from graph_tools.store.rows import quantize
from graph_tools.tensors import ArrayTensor, StreamTensor
from helpers.models.embedding_tables import INDEX_KINDS, absent_of, present_of, rows_of, spec_of, streamed, written


@pytest.mark.parametrize("count", [0, 1, 2, 5, 6, 101, 4099])
@pytest.mark.parametrize("kind", INDEX_KINDS)
def test_every_key_finds_its_row(tmp_path: Path, kind: str, count: int) -> None:
    file = write_table(tmp_path, spec_of(kind, count))
    reader = TableReader(file.path)
    reader.check()
    np.testing.assert_array_equal(reader.find(present_of(kind, count)), np.arange(count))
    np.testing.assert_array_equal(reader.lookup(present_of(kind, count)), rows_of(count, 5))
    assert (reader.find(absent_of(kind, count)) == -1).all()
    assert not reader.lookup(absent_of(kind, count)).any()


@pytest.mark.parametrize("kind", INDEX_KINDS)
def test_large_table(tmp_path: Path, kind: str) -> None:
    file = write_table(tmp_path, spec_of(kind, 200_003, dim=1))
    reader = TableReader(file.path)
    reader.check()
    np.testing.assert_array_equal(reader.lookup(present_of(kind, 200_003)), rows_of(200_003, 1))


@pytest.mark.parametrize("dim", [1, 3, 16])
@pytest.mark.parametrize("row_type", ROW_TYPES)
def test_rows_of_every_type(tmp_path: Path, row_type: str, dim: int) -> None:
    spec = spec_of("int64", 301, dim, row_type)
    reader = TableReader(written(tmp_path, spec))
    reader.check()
    expected = decode(encode(rows_of(301, dim), row_type), row_type, dim)
    np.testing.assert_array_equal(reader.lookup(present_of("int64", 301)), expected)


@pytest.mark.parametrize("kind", INDEX_KINDS)
def test_default_rows_are_chosen_by_the_key(tmp_path: Path, kind: str) -> None:
    import tensorflow as tf

    default = ArrayTensor(rows_of(3, 5, seed=9) + 100)
    reader = TableReader(written(tmp_path, spec_of(kind, 11, absent_key="default", default_rows=default)))
    reader.check()
    absent = absent_of(kind, 11)
    if kind == "string":
        number = tf.strings.to_hash_bucket_fast(tf.constant(absent), 3).numpy()
    else:
        number = np.array([int(key) % 3 for key in absent])
    np.testing.assert_array_equal(reader.lookup(absent), default.array[number])
    np.testing.assert_array_equal(reader.lookup(present_of(kind, 11)), rows_of(11, 5))


def test_absent_keys_that_are_errors(tmp_path: Path) -> None:
    reader = TableReader(written(tmp_path, spec_of("int64", 11, absent_key="error")))
    with pytest.raises(KeyError, match="-2"):
        reader.lookup(absent_of("int64", 11))


def test_several_keys_may_share_one_row(tmp_path: Path) -> None:
    keys = np.random.default_rng(0).permutation(1000).astype(np.int64)
    numbers = (keys % 10).astype(np.int32)
    spec = TableSpec(4, ArrayTensor(rows_of(10, 4)), keys=ArrayTensor(keys), row_numbers=ArrayTensor(numbers))
    reader = TableReader(written(tmp_path, spec))
    reader.check()
    np.testing.assert_array_equal(reader.find(keys), numbers)
    counting = replace(spec_of("int64", 101), row_numbers=ArrayTensor(np.arange(101)))
    assert written(tmp_path, counting) == written(tmp_path, spec_of("int64", 101))


def test_strings_with_one_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No two strings with one FarmHash fingerprint are at hand, so all strings of a length get one."""

    def by_length(strings: np.ndarray) -> np.ndarray:
        return np.fromiter(map(len, strings.tolist()), np.uint64, len(strings))

    for module in (table_file, reader_module):
        monkeypatch.setattr(module, "fingerprints", by_length)
    reader = TableReader(written(tmp_path, spec_of("string", 301)))
    reader.check()
    np.testing.assert_array_equal(reader.find(present_of("string", 301)), np.arange(301))
    assert (reader.find(absent_of("string", 301)) == -1).all()
    twice = present_of("string", 301)
    twice[200] = twice[100]
    with pytest.raises(ConversionError, match=r"user/100' occurs twice"):
        write_table(tmp_path, replace(spec_of("string", 301), keys=ArrayTensor(twice)))


@pytest.mark.parametrize("kind", INDEX_KINDS)
@pytest.mark.parametrize("row_type", ["fp32", "int4"])
def test_equal_tables_are_one_file(tmp_path: Path, kind: str, row_type: str) -> None:
    default = ArrayTensor(rows_of(2, 5))
    spec = spec_of(kind, 523, row_type=row_type, absent_key="default", default_rows=default)
    first = write_table(tmp_path, spec)
    rows = rows_of(523, 5)
    in_pieces = replace(spec, rows=StreamTensor(rows.dtype, rows.shape, lambda _: iter(np.split(rows, [7, 8, 400]))))
    assert write_table(tmp_path, in_pieces).path == first.path
    assert write_table(tmp_path, TableReader(first.path).spec()).path == first.path
    assert [path.name for path in tmp_path.iterdir()] == [first.name]
    other = write_table(tmp_path, replace(spec, default_rows=ArrayTensor(rows_of(2, 5, seed=1))))
    assert other.name != first.name


def test_name_is_the_digest_and_mode_is_read_only(tmp_path: Path) -> None:
    file = write_table(tmp_path, spec_of("string", 37))
    raw = file.path.read_bytes()
    assert file.path.name == f"{hashlib.sha256(raw).hexdigest()}.emb" == file.name
    assert file.size == len(raw)
    assert raw[:HEADER_BYTES] == file.header.pack()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o444


def test_rows_quantized_by_cut_pass_as_they_are(tmp_path: Path) -> None:
    found = quantize(rows_of(101, 7), "int4")
    spec = TableSpec(7, QuantisedRows(ArrayTensor(found.codes), ArrayTensor(found.scale_bias)), "int4")
    assert written(tmp_path, spec) == written(tmp_path, spec_of("direct", 101, 7, "int4"))


def test_padding_between_sections_is_zero(tmp_path: Path) -> None:
    file = write_table(tmp_path, spec_of("string", 37, dim=3))
    raw = np.frombuffer(file.path.read_bytes(), np.uint8).copy()
    raw[:HEADER_BYTES] = 0
    for section in (*file.header.sections().values(), file.header.checksums):
        raw[section.offset : section.end] = 0
    assert not raw.any()
    assert file.header.row_data.offset == 4096
    assert file.header.index.offset % 64 == 0


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (TableSpec(3, ArrayTensor(rows_of(4, 2))), r"rows float32\[4, 2\]"),
        (TableSpec(2, ArrayTensor(np.zeros((4, 2), np.int32))), "rows int32"),
        (replace(spec_of("direct", 4), row_type="fp8"), "'fp8'"),
        (replace(spec_of("direct", 4), absent_key="default"), "no default rows"),
        (replace(spec_of("direct", 4), default_rows=ArrayTensor(rows_of(1, 5))), "default rows"),
        (
            replace(spec_of("direct", 4), absent_key="default", default_rows=ArrayTensor(rows_of(0, 5))),
            "0 default rows",
        ),
        (replace(spec_of("int64", 4), rows=ArrayTensor(rows_of(5, 5))), "4 keys"),
        (replace(spec_of("direct", 4), row_numbers=ArrayTensor(np.zeros(4, np.int64))), "without keys"),
        (replace(spec_of("string", 4), row_numbers=ArrayTensor(np.zeros(4, np.int64))), "for int64 keys"),
        (replace(spec_of("int64", 4), keys=ArrayTensor(np.zeros(4, np.float32))), "keys float32"),
        (replace(spec_of("int64", 4), row_numbers=ArrayTensor(np.array([0, 1, 2, 4]))), "row numbers 0 to 4"),
        (replace(spec_of("int64", 2), keys=ArrayTensor(np.array([7, 7]))), "key 7: occurs twice"),
        (replace(spec_of("string", 2), keys=ArrayTensor(np.array([b"a", b"a"], object))), "b'a' occurs twice"),
        (
            replace(spec_of("direct", 4), rows=StreamTensor(np.dtype("f4"), (4, 5), lambda _: iter([rows_of(3, 5)]))),
            "3 rows, expected 4",
        ),
        (
            replace(spec_of("direct", 4), rows=StreamTensor(np.dtype("f4"), (4, 5), lambda _: iter([rows_of(4, 6)]))),
            "a block",
        ),
        (TableSpec(1, ArrayTensor(np.full((1, 1), 1e6, "f4")), "fp16"), "exceeds the range"),
    ],
)
def test_wrong_table_is_refused_and_leaves_nothing(tmp_path: Path, spec: TableSpec, found: str) -> None:
    with pytest.raises(ConversionError, match=found):
        write_table(tmp_path, spec)
    assert not list(tmp_path.iterdir())


def test_too_many_rows_are_refused_before_any_is_read(tmp_path: Path) -> None:
    def never(rows: int) -> object:
        raise AssertionError("read")

    spec = TableSpec(1, StreamTensor(np.dtype("f4"), ((1 << 32) - 16, 1), never))  # type: ignore[arg-type]
    with pytest.raises(ConversionError, match="4294967280 rows"):
        write_table(tmp_path, spec)


def test_index_beyond_the_memory_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="1000 keys, which takes 18000 bytes"):
        write_table(tmp_path, spec_of("int64", 1000), memory_limit=10_000)
    write_table(tmp_path, spec_of("direct", 1000), memory_limit=10_000)


def test_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    def make(begin: int, end: int) -> np.ndarray:
        if begin:
            raise KeyboardInterrupt
        return rows_of(end, 16)

    with pytest.raises(KeyboardInterrupt):
        write_table(tmp_path, TableSpec(16, streamed(1_000_000, 16, make)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("call", ["fsync", "fchmod"])
def test_full_disk_is_an_error_that_leaves_nothing(tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(table_file.os, call, full)
    with pytest.raises(ConversionError, match="No space left"):
        write_table(tmp_path, spec_of("direct", 4))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("row_type", ["fp32", "int8"])
def test_rows_are_streamed(tmp_path: Path, row_type: str) -> None:
    """256 MB of rows pass through a few blocks of 4 MiB."""
    block = np.ones((1 << 16, 64), np.float32)
    rows = streamed(1 << 20, 64, lambda begin, end: block[: end - begin])
    tracemalloc.start()
    try:
        write_table(tmp_path, TableSpec(64, rows, row_type))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 40 << 20


def test_progress_counts_the_bytes_of_the_sections(tmp_path: Path) -> None:
    told: list[int] = []
    file = write_table(tmp_path, spec_of("string", 37), progress=told.append)
    assert sum(told) == sum(section.size for section in file.header.sections().values())
