# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import UnreadableError
from graph_tools.readers import hps_files
from graph_tools.tables.checks import check_table
from helpers.models import sparse_files

KEYS = [7, -3, 2**62]
ROWS = [[0.5, 1.5], [-2.0, 0.0], [1e-8, 3.0]]


def test_a_table(tmp_path: Path) -> None:
    sparse_files.write_hps(tmp_path / "model" / "users", KEYS, ROWS)
    found = hps_files.find_tables(tmp_path)
    assert found == {"model/users": tmp_path / "model" / "users"}
    assert list(hps_files.find_tables(tmp_path / "model" / "users")) == ["users"]
    table = hps_files.open_table("users", found["model/users"])
    check_table(table)
    assert (table.family, table.dim, table.count, table.key_dtype) == ("hps", 2, 3, np.dtype(np.int64))
    np.testing.assert_array_equal(table.parts[0].keys.read(), KEYS)
    np.testing.assert_array_equal(table.parts[0].rows.read(), np.float32(ROWS))
    assert table.absent.kind == "zero"
    assert table.dropped_tensors == []


def test_a_configuration_gives_dimension_and_default(tmp_path: Path) -> None:
    sparse_files.write_hps(tmp_path / "a", KEYS, ROWS)
    sparse_files.write_hps(tmp_path / "b", [1], [[1.0, 2.0, 3.0]])
    model = {
        "model": "dlrm",
        "sparse_files": ["a", "b"],
        "embedding_table_names": ["first", "second"],
        "embedding_vecsize_per_table": [2, 3],
        "default_value_for_each_table": [1.0, 0.0],
    }
    config = tmp_path / "ps.json"
    config.write_text(json.dumps({"models": [model]}))
    first, second = hps_files.open_configured(config)
    assert (first.name, first.dim, second.name, second.dim) == ("first", 2, "second", 3)
    np.testing.assert_array_equal(first.absent.lookup(np.array([99]), 2, np.dtype(np.float32)), [[1, 1]])
    assert (first.absent.kind, second.absent.kind) == ("row", "zero")

    config.write_text(json.dumps({"models": [model | {"embedding_vecsize_per_table": [4, 3]}]}))
    with pytest.raises(UnreadableError, match=r"a/emb_vector: 24 bytes, expected 48 \(3 keys x 4 floats\)"):
        hps_files.open_configured(config)
    config.write_text(json.dumps({"models": [model | {"embedding_vecsize_per_table": [4]}]}))
    with pytest.raises(
        UnreadableError, match=r"embedding_vecsize_per_table of model 'dlrm' is \[4\], expected a list of 2"
    ):
        hps_files.open_configured(config)
    config.write_text("{")
    with pytest.raises(UnreadableError, match=r"ps\.json: .*expected JSON with a list `models`"):
        hps_files.open_configured(config)


def test_bad_folders(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    sparse_files.write_hps(folder, KEYS, ROWS)
    (folder / "emb_vector").write_bytes(bytes(22))
    with pytest.raises(UnreadableError, match=r"emb_vector: 22 bytes, expected a multiple of 12 above zero"):
        hps_files.open_table("t", folder)
    (folder / "emb_vector").write_bytes(b"")
    with pytest.raises(UnreadableError, match=r"emb_vector: 0 bytes"):
        hps_files.open_table("t", folder)
    (folder / "key").write_bytes(bytes(12))
    with pytest.raises(UnreadableError, match=r"key: 12 bytes, expected a multiple of 8"):
        hps_files.open_table("t", folder)
    (folder / "key").write_bytes(b"")
    with pytest.raises(UnreadableError, match="key: empty"):
        hps_files.open_table("t", folder)
    (folder / "key").unlink()
    with pytest.raises(UnreadableError, match="key: does not exist"):
        hps_files.open_table("t", folder)
