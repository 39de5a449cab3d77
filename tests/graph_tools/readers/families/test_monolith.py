# SPDX-License-Identifier: Apache-2.0
"""Test Monolith's hash tables in one SavedModel with its exporter's layout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.graph.sparse_lookup import lookups, table_of
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers import read_model
from graph_tools.readers.unknown_ops import check_unknown_ops
from graph_tools.tables.checks import check_table
from graph_tools.verbs.cut import cut
from graph_tools.verification.evaluate import evaluate
from helpers.graph_tools.stock_answers import answers
from helpers.models.sparse_graphs import MonolithExport, add_signature, from_servers, monolith_config, split_by_server
from load_tests.workloads.sparse_exports import rows_for, score_for

Table = Mapping[int, list[float]]

USERS: Table = {key: [key % 97 / 8, 1.0, -(key % 5)] for key in (3, -9, 7, 0, 2**62)}
ITEMS: Table = {key: [float(key)] for key in range(20)}
ASKED = np.array([7, 8, 2**62, -9, 0, 3, 7], np.int64)


def answer(table: Table, asked: Any) -> np.ndarray:
    return rows_for(asked, np.array(list(table), np.int64), np.array(list(table.values()), np.float32))


def shards(table: Table, count: int) -> list[dict[int, list[float]]]:
    return [{key: row for i, (key, row) in enumerate(table.items()) if i % count == shard} for shard in range(count)]


def by_server(table: Table, count: int) -> list[dict[int, list[float]]]:
    return [{key: row for key, row in table.items() if key % count == server} for server in range(count)]


def two_tables(path: Path, **how: Any) -> Path:
    export = MonolithExport()
    users = export.table("user", shards(USERS, 2), dim=how.get("dim", 3), config=how.get("config"))
    items = export.table("item", shards(ITEMS, 1), dim=1)
    rows = [export.lookup(users, export.input("user"), how.get("dim_size", 3))]
    rows.append(export.lookup(items, export.input("item"), 1))
    return export.finish(path / "model", rows, 4)


def served(path: Path, **options: Any) -> Any:
    """Read a model, leave out what is not served, and check that nothing unknown is left."""
    model = read_model(path, **options)
    PruneUnreachable().apply(model)
    check_unknown_ops(model)
    return model


def test_tables_and_lookups(tmp_path: Path) -> None:
    model = served(two_tables(tmp_path))
    tables = model.sparse_tables
    assert {name: (table.dim, table.count, len(table.parts), table.family) for name, table in tables.items()} == {
        "MonolithHashTable_user": (3, 5, 2, "monolith"),
        "MonolithHashTable_item": (1, 20, 1, "monolith"),
    }
    for table in tables.values():
        check_table(table)
        assert table.absent.kind == "zero"
    assert model.init == []
    assert model.assets == {}
    reason = "its rows are in the tables that were made of it"
    assert model.removed_assets["MonolithHashTable_user-00001-of-00002"] == reason
    found = evaluate(model, "serving_default", {"user": ASKED, "item": ASKED[::-1].copy()})
    rows = np.concatenate([answer(USERS, ASKED), answer(ITEMS, ASKED[::-1])], axis=1)
    np.testing.assert_array_equal(found["rows"], rows)
    np.testing.assert_allclose(found["score"], score_for(rows), rtol=1e-6)


def test_an_empty_table_gives_zeros(tmp_path: Path) -> None:
    export = MonolithExport()
    nobody = export.table("nobody", [{}], dim=3)
    path = export.finish(tmp_path / "model", [export.lookup(nobody, export.input("user"), 3)], 3)
    model = served(path)
    assert model.sparse_tables == {}
    np.testing.assert_array_equal(evaluate(model, "serving_default", {"user": ASKED})["rows"], np.zeros((7, 3)))


def test_signatures_that_write_tables_are_left_out(tmp_path: Path) -> None:
    export = MonolithExport()
    users = export.table("user", shards(USERS, 1), dim=3)
    ids, value = (
        export.node("Placeholder", name="id", dtype="int64"),
        export.node("Placeholder", name="v", dtype="float32"),
    )
    time = export.const(np.int64(0))
    assign = export.node("MonolithHashTableAssign", [users, ids, value, time], "assign")
    export.node("Identity", [ids, f"^{assign}"], "assigned", T="int64")
    path = export.finish(tmp_path / "model", [export.lookup(users, export.input("user"), 3)], 3)
    add_signature(path, "hashtable_assign", {"id": "id", "value": "v"}, {"result": "assigned"})
    model = served(path)
    assert list(model.signatures) == ["serving_default"]
    assert model.removed_signatures == {"hashtable_assign": "it writes tables"}
    np.testing.assert_array_equal(evaluate(model, "serving_default", {"user": ASKED})["rows"], answer(USERS, ASKED))
    with pytest.raises(ConversionError, match="signatures hashtable_assign write tables, expected one that only reads"):
        read_model(path, signatures=("hashtable_assign",))


def multi(path: Path, dumped: tuple[str, ...] = ()) -> Path:
    """Write a table of three tables, one of them empty, whose ids lie one after another."""
    export = MonolithExport()
    dims = {"item": 1, "nobody": 2, "user": 3}
    handle = export.multi_table("all", {"item": ITEMS, "nobody": {}, "user": USERS}, dims, dumped)
    export.input("splits")
    flat = export.multi_lookup(handle, export.input("ids"), "splits")
    export.node("Identity", [flat], "flat", T="float32")
    return export.write(path / "model", {"flat": "flat", "raw": flat})


@pytest.mark.parametrize("sizes", [[2, 3, 4], [0, 0, 0], [5, 0, 2], [0, 1, 0]])
def test_a_table_of_tables(tmp_path: Path, sizes: list[int]) -> None:
    model = served(multi(tmp_path))
    assert set(model.sparse_tables) == {"item", "user"}
    ids = np.resize(ASKED, sum(sizes))
    splits = np.concatenate([[0], np.cumsum(sizes)])
    found = evaluate(model, "serving_default", {"ids": ids, "splits": splits.astype(np.int64)})
    items, nobody, users = np.split(ids, splits[1:-1])
    expected = np.concatenate([answer(ITEMS, items).ravel(), np.zeros(2 * len(nobody)), answer(USERS, users).ravel()])
    np.testing.assert_array_equal(found["flat"], expected)
    np.testing.assert_array_equal(found["raw"], expected)


def test_a_dump_without_a_table(tmp_path: Path) -> None:
    message = r"MonolithMultiHashTable_all: contains item, user, expected also nobody \(looked up by node"
    with pytest.raises(UnreadableError, match=message):
        read_model(multi(tmp_path, dumped=("item", "user")))


def fused(path: Path, several: bool, servers: int = 2, old: bool = False) -> Path:
    export = MonolithExport()
    if several:
        handles = [export.multi_table("all", {"item": ITEMS, "user": USERS}, {"item": 1, "user": 3})]
    else:
        handles = [export.table("item", shards(ITEMS, 1), dim=1), export.table("user", shards(USERS, 2), dim=3)]
    inputs = [*handles, export.input("ids"), export.input("sizes", "int32")]
    attrs = {"num_of_shards": servers} | ({} if several else {"N": 2})
    if several:
        made = export.node("MonolithMultiHashTableFusedLookup", inputs, **attrs)
    else:
        time = [] if old else [export.const(np.int64(0))]
        made = export.node("MonolithHashTableFusedLookup", [*inputs, *time], **attrs)
    outputs = {"values": f"{made}:0"}
    for port in (1, 2, 3) if not old else (1,):
        outputs[f"offsets_{port}"] = export.node("Cast", [f"{made}:{port}"], SrcT="int32", DstT="float32")
    if not several and not old:
        outputs["ids"] = export.node("Cast", [f"{made}:4"], SrcT="int64", DstT="float32")
    if old:
        outputs["sizes"] = f"{made}:4"
    return export.write(path / "model", outputs)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("sizes", [[1, 2, 0, 3], [0, 0, 0, 0], [2, 0, 2, 1]])
def test_fused_lookups(tmp_path: Path, several: bool, sizes: list[int]) -> None:
    """Pieces go server by server, and for each of those table by table."""
    model = served(fused(tmp_path, several))
    ids = np.resize(ASKED, sum(sizes))
    found = evaluate(model, "serving_default", {"ids": ids, "sizes": np.array(sizes, np.int32)})
    begins = np.concatenate([[0], np.cumsum(sizes)])
    pieces = np.split(ids, begins[1:-1])
    rows = [answer(table, piece).ravel() for table, piece in zip([ITEMS, USERS] * 2, pieces, strict=True)]
    np.testing.assert_array_equal(found["values"], np.concatenate(rows))
    lengths = [len(row) for row in rows]
    np.testing.assert_array_equal(found["offsets_1"], [lengths[0] + lengths[1], lengths[2] + lengths[3]])
    np.testing.assert_array_equal(found["offsets_2"], begins)
    np.testing.assert_array_equal(found["offsets_3"], np.concatenate([[0], np.cumsum(lengths)]))
    if not several:
        np.testing.assert_array_equal(found["ids"], ids.astype(np.float32))


def test_offsets_of_fused_lookups_of_old_releases_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConversionError, match=r"output 4 of an old release is used, .* whose op has the input req_time"
    ):
        read_model(fused(tmp_path, several=False, old=True))


def spread(path: Path, tables: list[dict[int, list[float]]], servers: int = 3, **how: Any) -> Path:
    """Write a standalone export whose table is in several by `id mod servers`."""
    export = MonolithExport()
    asked = export.input("user")
    ids = split_by_server(export, asked, how.get("modulus", servers), how.get("unique", True))
    handles = [export.table(f"user_{number}", [table], dim=3) for number, table in enumerate(tables)]
    rows = [export.lookup(handle, keys, 3) for handle, keys in zip(handles, ids, strict=True)]
    if how.get("timed"):
        times = export.node("MonolithTensorsTimestamp", rows, T=[np.dtype(np.float32)] * servers)
        rows = [f"{times}:{i}" for i in range(servers)]
    if how.get("changed"):
        rows = [export.node("Neg", [row], T="float32") for row in rows]
    out = from_servers(export, ids, rows, asked)
    return export.finish(path / "model", [out], 3)


@pytest.mark.parametrize("how", [{}, {"unique": False}, {"timed": True}])
def test_shards_by_server_become_one_table(tmp_path: Path, how: dict[str, bool]) -> None:
    model = served(spread(tmp_path, by_server(USERS, 3), **how))
    (lookup,) = lookups(model.graph)
    assert table_of(lookup) == "MonolithHashTable_user"
    table = model.sparse_tables["MonolithHashTable_user"]
    assert (table.count, table.dim) == (5, 3)
    check_table(table)
    assert not model.graph.of("Unique", "DynamicPartition")
    np.testing.assert_array_equal(evaluate(model, "serving_default", {"user": ASKED})["rows"], answer(USERS, ASKED))


def test_shards_that_something_else_is_done_with_stay_apart(tmp_path: Path) -> None:
    model = served(spread(tmp_path, by_server(USERS, 3), changed=True))
    # No key is at server 2 of 3 but 2**62 + ..., so that its table may be empty.
    assert len(lookups(model.graph)) == sum(bool(keys) for keys in by_server(USERS, 3))
    found = evaluate(model, "serving_default", {"user": ASKED})["rows"]
    np.testing.assert_array_equal(found, -answer(USERS, ASKED))
    assert evaluate(model, "serving_default", {"user": ASKED[:0]})["rows"].shape == (0, 3)


def test_a_key_in_the_wrong_shard_is_refused(tmp_path: Path) -> None:
    tables = by_server(USERS, 3)
    tables[1][6] = [1.0, 2.0, 3.0]
    with pytest.raises(UnreadableError, match="MonolithHashTable_user_1: key 6 in shard 1, expected it in 0 of 3"):
        read_model(spread(tmp_path, tables))


@pytest.mark.parametrize("place", ["given", "given export"])
def test_dumps_in_the_given_folder(tmp_path: Path, place: str) -> None:
    path = two_tables(tmp_path)
    elsewhere = tmp_path / "elsewhere" / ("assets" if place == "given export" else "")
    elsewhere.parent.mkdir(exist_ok=True)
    dumps = [file for file in (path / "assets").iterdir() if "item" in file.name]
    elsewhere.mkdir(exist_ok=True)
    for dump in dumps:
        (elsewhere / dump.name).write_bytes(dump.read_bytes())
        dump.write_bytes(b"")
    model = served(path, checkpoint=tmp_path / "elsewhere")
    assert model.sparse_tables["MonolithHashTable_item"].count == 20


def test_dumps_that_are_not_there(tmp_path: Path) -> None:
    export = MonolithExport()
    users = export.table("user", [], dim=3, files=False)
    path = export.finish(tmp_path / "model", [export.lookup(users, export.input("user"), 3)], 3)
    message = r"MonolithHashTable_user: no shards 'MonolithHashTable_user-00000-of-…' in .*/model/assets, expected them"
    with pytest.raises(UnreadableError, match=message):
        read_model(path)


def test_bad_shards(tmp_path: Path) -> None:
    path = two_tables(tmp_path)
    shard = path / "assets" / "MonolithHashTable_user-00001-of-00002"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-5])
    with pytest.raises(UnreadableError, match=r"user-00001-of-00002: ends within record .* \(looked up by node 'Mono"):
        read_model(path)
    shard.unlink()
    with pytest.raises(
        UnreadableError, match="user-00001-of-00002: does not exist, expected the asset that the SavedModel"
    ):
        read_model(path)


def test_lengths_of_rows_that_differ(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="table MonolithHashTable_user: rows of 3, expected 4 as its config says"):
        read_model(two_tables(tmp_path / "config", dim=4))
    with pytest.raises(
        UnreadableError, match=r"user: rows of 3, expected 5 as dim_size of node 'MonolithHashTableLook"
    ):
        read_model(two_tables(tmp_path / "node", dim_size=5))


def test_rows_served_in_fewer_bits_are_read_and_single_bits_refused(tmp_path: Path) -> None:
    for compressor in ("fp16", "fixed_r8"):
        model = served(two_tables(tmp_path / compressor, config=monolith_config(3, compressor)))
        np.testing.assert_array_equal(
            evaluate(model, "serving_default", {"user": ASKED, "item": ASKED})["rows"][:, :3], answer(USERS, ASKED)
        )
    with pytest.raises(ConversionError, match="user: served as one bit a value, expected rows to be served as saved"):
        read_model(two_tables(tmp_path / "bit", config=monolith_config(3, "one_bit")))
    with pytest.raises(
        UnreadableError, match=r"node 'MonolithHashTable_user': config with .*, expected the message of"
    ):
        read_model(two_tables(tmp_path / "bad", config=b"\x0a\x7f"))


def test_the_user_chooses_what_absent_keys_are_given(tmp_path: Path) -> None:
    model = served(two_tables(tmp_path), absent_key={"MonolithHashTable_user": "row:-9"})
    found = evaluate(model, "serving_default", {"user": np.array([8]), "item": np.array([99])})
    np.testing.assert_array_equal(found["rows"], [[*USERS[-9], 0.0]])


def test_a_cut_runs_in_stock_tensorflow(tmp_path: Path) -> None:
    cut(two_tables(tmp_path), tmp_path / "cut")
    assert not (tmp_path / "cut" / "assets").exists()
    found = answers(tmp_path / "cut", {"user": ASKED, "item": ASKED})["rows"]
    np.testing.assert_array_equal(found, np.concatenate([answer(USERS, ASKED), answer(ITEMS, ASKED)], axis=1))


def test_a_cut_of_a_table_of_tables_runs_in_stock_tensorflow(tmp_path: Path) -> None:
    splits = np.array([0, 3, 3, 7], np.int64)
    requests = tmp_path / "requests.npz"
    np.savez(requests, ids=ASKED, splits=splits)
    # Nothing else than these splits fits, which one request proves weakly.
    cut(multi(tmp_path), tmp_path / "cut", requests=[requests], accept_weak_proof=True)
    found = answers(tmp_path / "cut", {"ids": ASKED, "splits": splits})["flat"]
    np.testing.assert_array_equal(found, np.r_[answer(ITEMS, ASKED[:3]).ravel(), answer(USERS, ASKED[3:]).ravel()])
