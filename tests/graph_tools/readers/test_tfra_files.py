# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import UnreadableError
from graph_tools.model.tables import Absent
from graph_tools.readers import tfra_files
from graph_tools.tables.checks import check_table
from helpers.models import sparse_files

RANKS = [[{1: [0.5, -1.0, 2.0], -4: [0.0, 0.0, 1.0]}, {}], [{7: [3.0, 4.0, 5.0]}, {2**60: [6.0, 7.0, 8.0]}]]
ALL = {key: row for devices in RANKS for device in devices for key, row in device.items()}


@pytest.mark.parametrize("ranked", [True, False])
def test_a_table(tmp_path: Path, ranked: bool) -> None:
    ranks = RANKS if ranked else RANKS[1:]
    sparse_files.write_tfra(tmp_path, "user_id", ranks, ranked=ranked)
    (tmp_path / "unrelated").write_text("")
    assert list(tfra_files.find_tables(tmp_path)) == ["user_id"]
    table = tfra_files.open_table(tmp_path, "user_id")
    check_table(table)
    assert (table.family, table.dim, table.key_dtype) == ("tfra", 3, np.dtype(np.int64))
    assert len(table.parts) == (4 if ranked else 2)
    rows = {
        int(key): row.tolist()
        for part in table.parts
        for key, row in zip(part.keys.read(), part.rows.read(), strict=True)
    }
    assert rows == (ALL if ranked else RANKS[1][0] | RANKS[1][1])
    assert table.absent.kind == "zero"
    assert "default_value" in table.absent.source


def test_other_types_and_default(tmp_path: Path) -> None:
    sparse_files.write_tfra(tmp_path, "t", [[{1: [0.5, 2.0], 2: [1.0, 0.25]}]], key="i", value="e")
    absent = Absent(np.ones((1, 2), np.float16), "default_value of lookup/Find")
    kinds = {"key_dtype": np.dtype(np.int32), "value_dtype": np.dtype(np.float16)}
    table = tfra_files.open_table(tmp_path, "t", **kinds, absent=absent)
    assert (table.dim, table.dtype, table.absent) == (2, np.float16, absent)
    np.testing.assert_array_equal(table.parts[0].rows.read(), [[0.5, 2], [1, 0.25]])
    with pytest.raises(UnreadableError, match="keys of type object, expected integers"):
        tfra_files.open_table(tmp_path, "t", key_dtype=np.dtype(object))


def test_slots_are_dropped_after_a_check_of_their_keys(tmp_path: Path) -> None:
    sparse_files.write_tfra(tmp_path, "t", RANKS)
    turned = [[{-4: [0.0] * 3, 1: [0.0] * 3}, {}], [{7: [1.0] * 3}, {2**60: [1.0] * 3}]]
    sparse_files.write_tfra(tmp_path, "t_Adam_m", turned)
    table = tfra_files.open_table(tmp_path, "t", slots=["t_Adam_m"])
    assert table.dropped_tensors == [("t_Adam_m", 4 * (8 + 12), "optimizer slot")]
    sparse_files.write_tfra(tmp_path, "t_Adam_m", [turned[0], [{8: [1.0] * 3}, {2**60: [1.0] * 3}]])
    with pytest.raises(UnreadableError, match="slot t_Adam_m has other keys than table t"):
        tfra_files.open_table(tmp_path, "t", slots=["t_Adam_m"])
    with pytest.raises(UnreadableError, match="no slot t_Adam_v, expected one of: t, t_Adam_m"):
        tfra_files.open_table(tmp_path, "t", slots=["t_Adam_v"])


def test_a_missing_file(tmp_path: Path) -> None:
    sparse_files.write_tfra(tmp_path, "t", RANKS)
    (tmp_path / "t_mht_2of2_rank1_size2-values").unlink()
    with pytest.raises(
        UnreadableError, match="t_mht_2of2_rank1_size2-values: does not exist, expected all files of table t"
    ):
        tfra_files.open_table(tmp_path, "t")
    for path in tmp_path.glob("*_rank0_*"):
        path.unlink()
    with pytest.raises(UnreadableError, match="rank0_size2-keys: does not exist"):
        tfra_files.find_tables(tmp_path)


def test_two_ways_to_spread_a_table(tmp_path: Path) -> None:
    sparse_files.write_tfra(tmp_path, "t", RANKS)
    sparse_files.write_tfra(tmp_path, "t", [[{1: [0.0] * 3}]])
    with pytest.raises(UnreadableError, match="table t exists as 1 shards x 1 processes and 2 shards x 2 processes"):
        tfra_files.find_tables(tmp_path)


def test_sizes_that_do_not_fit(tmp_path: Path) -> None:
    sparse_files.write_tfra(tmp_path, "t", RANKS)
    values = tmp_path / "t_mht_1of2_rank1_size2-values"
    values.write_bytes(bytes(24))
    with pytest.raises(UnreadableError, match=r"t_mht_1of2_rank1_size2-values: 2 rows of 3, expected 1 as in"):
        tfra_files.open_table(tmp_path, "t")
    values.write_bytes(bytes(11))
    with pytest.raises(UnreadableError, match=r"11 bytes, expected a multiple of 12"):
        tfra_files.open_table(tmp_path, "t")
    with pytest.raises(UnreadableError, match=r"24 bytes for 2 keys, expected 4 values of float32 for each"):
        tfra_files.open_table(tmp_path, "t", dim=4)
    (tmp_path / "t_mht_1of2_rank0_size2-keys").write_bytes(bytes(9))
    with pytest.raises(UnreadableError, match=r"keys: 9 bytes, expected a multiple of 8"):
        tfra_files.open_table(tmp_path, "t")


def test_missing_keys_tables_and_folders_are_named(tmp_path: Path) -> None:
    sparse_files.write_tfra(tmp_path, "t", [[{}, {}]])
    with pytest.raises(UnreadableError, match="table t has no keys"):
        tfra_files.open_table(tmp_path, "t")
    with pytest.raises(UnreadableError, match="no table u, expected one of: t"):
        tfra_files.open_table(tmp_path, "u")
    with pytest.raises(UnreadableError, match="gone: does not exist, expected a folder"):
        tfra_files.find_tables(tmp_path / "gone")
