# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import UnreadableError
from graph_tools.model.tables import SparseTable
from graph_tools.readers import monolith_files, tfrecord
from graph_tools.tables.checks import check_table
from helpers.models import sparse_files

DIM = 5


def row_of(key: int) -> list[float]:
    return [key / 8 + column for column in range(DIM)]


def entry(key: int) -> bytes:
    return sparse_files.monolith_entry(key, row_of(key), norm=[0.5] * DIM, time=1_700_000_000 + key % 3)


def content(table: SparseTable) -> dict[int, list[float]]:
    rows = {}
    for part in table.parts:
        for keys, values in zip(part.keys.chunks(100), part.rows.chunks(100), strict=True):
            assert len(keys) <= 100
            rows.update(zip(keys.tolist(), values.tolist(), strict=True))
    return rows


SHARDS = [[entry(key) for key in range(1, 700)], [], [entry(key) for key in range(-50, 0)]]


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_a_table(tmp_path: Path, compression: str) -> None:
    sparse_files.write_monolith(tmp_path, "user", SHARDS, compression)
    (tmp_path / "user-00000-of-00003-tmp-12345").write_bytes(b"half of it")
    dumps = monolith_files.find_dumps(tmp_path)
    assert list(dumps) == ["user"]
    tables = monolith_files.open_tables("user", dumps["user"])
    assert list(tables) == ["user"]
    table = tables["user"]
    check_table(table)
    assert (table.family, table.dim, table.count, table.key_dtype) == ("monolith", DIM, 749, np.dtype(np.int64))
    assert content(table) == {key: row_of(key) for key in range(-50, 700) if key}
    assert table.absent.kind == "zero"
    ((name, dropped, reason),) = table.dropped_tensors
    assert (name, reason) == ("user: opt, last_update_ts_sec", "optimizer state, times and message tags")
    assert dropped == sum(len(message) - 8 - 4 * DIM for shard in SHARDS for message in shard)


def test_several_tables_in_one_dump(tmp_path: Path) -> None:
    other = [sparse_files.monolith_entry(key, [float(key)] * 2) for key in range(30)]
    sparse_files.write_monolith(tmp_path, "all", [[entry(1), entry(2), *other[:10]], [*other[10:]]])
    counts = [[("users", 2), ("nobody", 0), ("items", 10)], [("users", 0), ("items", 20), ("nobody", 0)]]
    sparse_files.write_monolith(
        tmp_path, "all.meta", [[sparse_files.monolith_metadata(*each) for each in shard] for shard in counts]
    )
    dumps = monolith_files.find_dumps(tmp_path)
    assert list(dumps) == ["all"]
    with pytest.raises(UnreadableError, match="table nobody: no entries"):
        monolith_files.open_tables("all", dumps["all"])
    for shard in counts:
        shard[:] = [each for each in shard if each[0] != "nobody"]
    sparse_files.write_monolith(
        tmp_path, "all.meta", [[sparse_files.monolith_metadata(*each) for each in shard] for shard in counts]
    )
    tables = monolith_files.open_tables("all", dumps["all"])
    assert {name: (table.dim, table.count) for name, table in tables.items()} == {"users": (DIM, 2), "items": (2, 30)}
    assert content(tables["users"]) == {1: row_of(1), 2: row_of(2)}
    assert content(tables["items"]) == {key: [float(key)] * 2 for key in range(30)}


def test_many_tables_across_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfrecord.byte_blocks, "__defaults__", ("none", 333))
    monkeypatch.setattr(monolith_files, "_ROWS_AT_ONCE", 3)
    sizes = {"a": 7, "b": 1, "c": 40, "d": 3}
    messages = [
        sparse_files.monolith_entry(key, [float(key)] * (1 + index))
        for index, n in enumerate(sizes.values())
        for key in range(n)
    ]
    sparse_files.write_monolith(tmp_path, "all", [messages])
    sparse_files.write_monolith(
        tmp_path, "all.meta", [[sparse_files.monolith_metadata(*each) for each in sizes.items()]]
    )
    tables = monolith_files.open_tables("all", monolith_files.find_dumps(tmp_path)["all"])
    for index, (name, count) in enumerate(sizes.items()):
        assert content(tables[name]) == {key: [float(key)] * (1 + index) for key in range(count)}


def test_metadata_that_does_not_fit(tmp_path: Path) -> None:
    sparse_files.write_monolith(tmp_path, "all", [[entry(1), entry(2)]])
    for counts, found in (
        ([("a", 1)], "all-00000-of-00001: 2 records, expected 1 as its metadata says"),
        ([("a", 3)], "all-00000-of-00001: 2 records, expected 3 as its metadata says"),
        ([("a", 1), ("a", 1)], "a table more than once"),
    ):
        sparse_files.write_monolith(tmp_path, "all.meta", [[sparse_files.monolith_metadata(*each) for each in counts]])
        with pytest.raises(UnreadableError, match=found):
            monolith_files.open_tables("all", monolith_files.find_dumps(tmp_path)["all"])
    sparse_files.write_monolith(tmp_path, "all.meta", [[b"\x10\x02"]])
    with pytest.raises(UnreadableError, match="no table name, expected a table's name and its number of entries"):
        monolith_files.open_tables("all", monolith_files.find_dumps(tmp_path)["all"])
    (tmp_path / "all-00000-of-00001").unlink()
    with pytest.raises(UnreadableError, match="metadata without shards"):
        monolith_files.find_dumps(tmp_path)


def open_broken(folder: Path, shards: list[list[bytes]]) -> None:
    sparse_files.write_monolith(folder, "t", shards)
    monolith_files.open_tables("t", monolith_files.find_dumps(folder)["t"])


def test_bad_entries(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"t-00000-of-00001: record 1 has key 7 without a row \(num\), expected"):
        open_broken(tmp_path, [[entry(1), sparse_files.monolith_entry(7, [])]])
    with pytest.raises(UnreadableError, match="record 2 has key 7 with 4 values instead of 5"):
        open_broken(tmp_path, [[entry(1), entry(2), sparse_files.monolith_entry(7, [1.0] * 4)]])


def test_shards_with_rows_of_different_length(tmp_path: Path) -> None:
    with pytest.raises(
        UnreadableError, match="t-00001-of-00002: rows of 4 in table t, expected 5 as in t-00000-of-00002"
    ):
        open_broken(tmp_path, [[entry(1)], [sparse_files.monolith_entry(7, [1.0] * 4)]])


def test_an_empty_table(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="table t: no entries, expected at least one"):
        open_broken(tmp_path, [[], []])


def test_a_repeated_key_is_refused(tmp_path: Path) -> None:
    sparse_files.write_monolith(tmp_path, "t", [[entry(1), entry(2)], [entry(2)]])
    table = monolith_files.open_tables("t", monolith_files.find_dumps(tmp_path)["t"])["t"]
    with pytest.raises(UnreadableError, match="table t: key 2 more than once, expected distinct keys"):
        check_table(table)


def test_missing_and_damaged_shards(tmp_path: Path) -> None:
    sparse_files.write_monolith(tmp_path, "t", SHARDS)
    dump = monolith_files.find_dumps(tmp_path)["t"]
    path = tmp_path / "t-00002-of-00003"
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    with pytest.raises(UnreadableError, match=r"t-00002-of-00003: ends within record 49"):
        monolith_files.open_tables("t", dump)
    damaged = bytearray(whole)
    damaged[-20] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(UnreadableError, match=r"t-00002-of-00003: record 49 has a wrong checksum"):
        monolith_files.open_tables("t", dump)
    path.unlink()
    with pytest.raises(UnreadableError, match=r"t-00002-of-00003: does not exist, expected a file"):
        monolith_files.open_tables("t", dump)
    with pytest.raises(UnreadableError, match=r"t-00002-of-00003: does not exist, expected all 3 shards"):
        monolith_files.find_dumps(tmp_path)
    with pytest.raises(UnreadableError, match="gone: does not exist, expected a folder of shards"):
        monolith_files.find_dumps(tmp_path / "gone")
