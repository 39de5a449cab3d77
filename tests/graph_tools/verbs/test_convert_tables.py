# SPDX-License-Identifier: Apache-2.0
"""Convert the tables of every training system, and read the files that were written."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from graph_tools import convert
from graph_tools.errors import ConversionError, UnreadableError, UsageError
from graph_tools.report.convert import ConvertedTable
from graph_tools.store.reader import TableReader
from helpers.models import sparse_files
from helpers.models.training_exports import EXPORTS, KEYS, ROWS
from load_tests.workloads.sparse_exports import Export, tfplus_lookup, tfplus_table


def lookup(folder: Path, table: ConvertedTable, keys: np.ndarray) -> np.ndarray:
    reader = TableReader(folder / f"{table.sha256}.emb")
    reader.check()
    return reader.lookup(keys)


@pytest.mark.parametrize("system", EXPORTS)
def test_rows_of_every_system(system: str, tmp_path: Path, repository: Path) -> None:
    export = EXPORTS[system](tmp_path / "in")
    report = convert(export.source, tmp_path / "out")
    (table,) = report.tables
    assert (table.name, table.family, table.key, table.dim, table.rows) == (export.name, export.family, "int64", 3, 5)
    np.testing.assert_array_equal(lookup(tmp_path / "out", table, KEYS), ROWS)
    # Rows for absent keys are left out.
    assert not lookup(tmp_path / "out", table, np.array([8], np.int64)).any()
    written = json.loads((tmp_path / "out" / "tables.json").read_text())
    assert written == report.to_json()
    jsonschema.validate(written, json.loads((repository / "docs/schemas/convert_report.schema.json").read_text()))
    files = {path.name for path in (tmp_path / "out").iterdir()} - {"tables.json"}
    assert files == {f"{sha}.emb" for sha in (table.sha256, table.counts_sha256) if sha}


def test_string_keys_of_which_some_are_not_served(tmp_path: Path) -> None:
    keys = np.array([b"a", b"", b"\xff", b"long " * 40], object)
    export = Export()
    handle = tfplus_table(export, "emb", keys, ROWS[:4], blacklist=[b"", b"other"])
    rows = tfplus_lookup(export, handle, export.input("item", "string"), "KvVariableGatherOrZerosV2", "string")
    source = export.finish(tmp_path / "model", [rows], 3)
    (table,) = convert(source, tmp_path / "out").tables
    assert (table.key, table.rows, table.ignored) == ("string", 3, 1)
    expected = ROWS[:4].copy()
    expected[1] = 0
    np.testing.assert_array_equal(lookup(tmp_path / "out", table, keys), expected)


def test_frequencies_become_a_table(tmp_path: Path) -> None:
    lines = [sparse_files.tensornet_adagrad_line(key, [1.0, 2.0], show=show) for key, show in ((5, 3), (6, 1e9))]
    blocks = [sparse_files.tensornet_text("AdaGrad", 2, lines if i == 2 else []) for i in range(8)]
    sparse_files.write_tensornet(tmp_path / "in" / "0", [blocks])
    (table,) = convert(tmp_path / "in", tmp_path / "out").tables
    assert table.counts_sha256 is not None
    counts = TableReader(tmp_path / "out" / f"{table.counts_sha256}.emb").lookup(np.array([5, 6]))
    # Counts of rows have 24 bits.
    assert counts[:, 0].tolist() == [3, 2**24 - 1]


def test_some_of_the_tables(tmp_path: Path) -> None:
    for name in ("user_emb", "user_bias", "item_emb"):
        sparse_files.write_tfra(tmp_path / "in", name, [[{1: [1.0]}]])
    report = convert(tmp_path / "in", tmp_path / "out", tables=["user*", "item_emb"])
    assert [table.name for table in report.tables] == ["item_emb", "user_bias", "user_emb"]
    with pytest.raises(
        UsageError, match=r"--table place: fits no table, expected one of item_emb, user_bias, user_emb$"
    ):
        convert(tmp_path / "in", tmp_path / "other", tables=["place"])
    assert not (tmp_path / "other").exists()


def test_bad_input_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableError, match="empty: neither a SavedModel nor table files in it, expected those of"):
        convert(tmp_path / "empty", out)
    with pytest.raises(UnreadableError, match="none: does not exist"):
        convert(tmp_path / "none", out)
    for name, keys, value, message in (
        ("nan", [1, 2], np.nan, "table nan: row 1 .key 2. has nan in column 0"),
        ("twice", [1, 1], 0.5, "table twice: key 1 more than once"),
    ):
        sparse_files.write_hps(tmp_path / "in" / name, keys, [[0.0], [value]])
        with pytest.raises(UnreadableError, match=message):
            convert(tmp_path / "in" / name, out)
    (tmp_path / "in" / "nan" / "emb_vector").write_bytes(b"12345")
    with pytest.raises(UnreadableError, match="emb_vector: 5 bytes, expected a multiple of 8"):
        convert(tmp_path / "in" / "nan", out)
    sparse_files.write_hps(tmp_path / "in" / "good", [1], [[0.0]])
    with pytest.raises(ConversionError, match="expected at most the memory limit of 8"):
        convert(tmp_path / "in" / "good", out, memory_limit=8)
    with pytest.raises(UsageError, match="has no graph, expected no other folder"):
        convert(tmp_path / "in" / "good", out, checkpoint=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "in"]
    convert(tmp_path / "in" / "good", out)
    with pytest.raises(UsageError, match="out: already exists"):
        convert(tmp_path / "in" / "good", out)
