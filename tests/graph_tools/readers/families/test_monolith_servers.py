# SPDX-License-Identifier: Apache-2.0
"""Test Monolith exports whose entry calls parameter servers, which are SavedModels of their own."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.graph.sparse_lookup import lookups
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers import read_model
from graph_tools.readers.unknown_ops import check_unknown_ops
from graph_tools.tables.checks import check_table
from graph_tools.verbs.cut import cut
from graph_tools.verification.evaluate import evaluate
from helpers.graph_tools.stock_answers import answers
from helpers.models.sparse_graphs import MonolithExport, add_signature, from_servers, moved, remote, split_by_server
from load_tests.workloads.sparse_exports import rows_for

Table = Mapping[int, list[float]]

USERS: Table = {key: [key % 97 / 8, 1.0, -(key % 5)] for key in (3, -9, 7, 0, 2**62, 11)}
ITEMS: Table = {key: [float(key)] for key in range(20)}
ASKED = np.array([7, 8, 2**62, -9, 0, 3, 7], np.int64)
SERVERS = 2


def answer(table: Table, asked: Any) -> np.ndarray:
    return rows_for(asked, np.array(list(table), np.int64), np.array(list(table.values()), np.float32))


def of_server(table: Table, server: int) -> dict[int, list[float]]:
    return {key: row for key, row in table.items() if key % SERVERS == server}


def write_server(path: Path, server: int, tables: Mapping[str, Table], dims: Mapping[str, int]) -> None:
    """Write a server with the signature `lookup`, by table."""
    export = MonolithExport()
    outputs = {}
    for name, table in tables.items():
        handle = export.table(f"{name}_{server}", [of_server(table, server)], dim=dims[name])
        outputs[name] = export.lookup(handle, export.input(name), dims[name])
    export.write(path, outputs)
    add_signature(path, "lookup", {name: name for name in tables}, outputs)


def write_entry(path: Path, servers: int = SERVERS, signature: str = "lookup", alias: str = "user") -> None:
    """Write an entry that asks for two tables at once and puts the answers together."""
    export = MonolithExport()
    asked = {"user": export.input("user"), "item": export.input("item")}
    ids = {name: split_by_server(export, keys, servers) for name, keys in asked.items()}
    calls = []
    for server in range(servers):
        inputs = {alias if name == "user" else name: ids[name][server] for name in ("item", "user")}
        calls.append(remote(export, server, signature, inputs, ["item", "user"]))
    rows = []
    for port, (name, dim) in enumerate((("item", 1), ("user", 3))):
        shape = export.const(np.array([-1, dim], np.int32))
        parts = [export.node("Reshape", [f"{call}:{2 + port}", shape], T="float32", Tshape="int32") for call in calls]
        rows.append(from_servers(export, ids[name], parts, asked[name]))
    export.finish(path, rows, 4)


def distributed(base: Path, version: str = "1700000000", **entry: Any) -> Path:
    write_entry(base / "entry" / version, **entry)
    for server in range(SERVERS):
        tables = {"user": USERS, "item": ITEMS}
        write_server(base / f"ps_{server}" / version, server, tables, {"user": 3, "item": 1})
    return base


def served(path: Path, **options: Any) -> Any:
    model = read_model(path, **options)
    PruneUnreachable().apply(model)
    check_unknown_ops(model)
    return model


@pytest.mark.parametrize(
    ("version", "named"), [("17", ""), ("17", "entry"), ("17", "entry/17"), ("", ""), ("", "entry")]
)
def test_an_entry_and_its_servers(tmp_path: Path, version: str, named: str) -> None:
    distributed(tmp_path / "export", version)
    model = served(tmp_path / "export" / named)
    assert model.path == tmp_path / "export" / "entry" / version
    tables = model.sparse_tables
    assert {name: (table.dim, table.count, len(table.parts)) for name, table in tables.items()} == {
        "MonolithHashTable_user": (3, 6, 2),
        "MonolithHashTable_item": (1, 20, 2),
    }
    for table in tables.values():
        check_table(table)
    assert len(lookups(model.graph)) == 2
    assert not model.graph.of("Unique", "TfServingRemotePredict")
    item = ASKED[::-1].copy()
    found = evaluate(model, "serving_default", {"user": ASKED, "item": item})
    np.testing.assert_array_equal(found["rows"], np.concatenate([answer(ITEMS, item), answer(USERS, ASKED)], axis=1))


def test_the_last_version_is_taken(tmp_path: Path) -> None:
    distributed(tmp_path, "9")
    distributed(tmp_path, "10")
    assert served(tmp_path).path == tmp_path / "entry" / "10"
    assert served(tmp_path / "entry" / "9").path == tmp_path / "entry" / "9"


def raw(base: Path, **how: Any) -> Path:
    """Write an export whose servers hold tables of tables, asked for flat values that fill a shared buffer."""
    dims = {"item": 1, "nobody": 2, "user": 3}
    tables = {"item": ITEMS, "nobody": {}, "user": USERS}
    for server in range(SERVERS):
        export = MonolithExport()
        mine = {name: of_server(table, server) for name, table in tables.items()}
        handle = export.multi_table(f"{server}", mine, dims)
        flat = export.multi_lookup(handle, export.input("id"), export.input("id_split"))
        path = export.write(base / f"ps_{server}" / "1", {"flat_emb": flat})
        add_signature(path, "raw_lookup", {"id": "id", "id_split": "id_split"}, {"flat_emb": flat})
    export = MonolithExport()
    keys, splits = export.input("ids"), export.input("splits")
    unique = export.node(
        "MonolithUniqueKeyWithValueAndOffset", [keys, splits], dims=how.get("dims", [1, 2, 3]), generate_buffer=True
    )
    number = export.node("FloorMod", [unique, export.const(np.int64(how.get("modulus", SERVERS)))], T="int64")
    parts = export.node("MonolithRaggedSplitByIndices", [number, unique, f"{unique}:1"], num_splits=SERVERS)
    fills = []
    for server in how.get("order", range(SERVERS)):
        timed = export.node("MonolithTensorsTimestamp", [f"{parts}:{server}"], T=[np.dtype(np.int64)])
        inputs = {"id": timed, "id_split": f"{parts}:{SERVERS + server}"}
        values = f"{remote(export, server, 'raw_lookup', inputs, ['flat_emb'])}:2"
        values = export.node("MonolithTensorsTimestamp", [values], T=[np.dtype(np.float32)])
        position = f"{parts}:{2 * SERVERS + server}"
        offsets = [f"{unique}:2", f"{unique}:3", f"{unique}:4"]
        fill_inputs = [position, f"{parts}:{SERVERS + server}", values, *offsets]
        fills.append(export.node("MonolithFillWithOffsetMap", fill_inputs, dims=[1, 2, 3]))
    flat = export.node(
        "MonolithFinalizeSharedTensor", fills, "flat", num_tensors=SERVERS, dtype="float32", shape=(None,)
    )
    export.write(base / "entry" / "1", {"flat": flat})
    return base


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_servers_that_fill_a_shared_buffer(tmp_path: Path, order: tuple[int, int]) -> None:
    model = served(raw(tmp_path, order=order))
    assert {name: table.count for name, table in model.sparse_tables.items()} == {"item": 20, "user": 6}
    splits = np.array([0, 4, 6, 13], np.int64)
    ids = np.concatenate([ASKED[:4], ASKED[:2], ASKED])
    found = evaluate(model, "serving_default", {"ids": ids, "splits": splits})["flat"]
    expected = [answer(ITEMS, ASKED[:4]).ravel(), np.zeros(4), answer(USERS, ASKED).ravel()]
    np.testing.assert_array_equal(found, np.concatenate(expected))


def test_buffers_that_are_filled_in_another_way_are_refused(tmp_path: Path) -> None:
    message = "node 'flat' .*: a buffer that is not filled by lookups of all servers, expected MonolithUniqueKey"
    with pytest.raises(ConversionError, match=message):
        read_model(raw(tmp_path / "modulus", modulus=7))
    with pytest.raises(ConversionError, match=message):
        read_model(raw(tmp_path / "twice", order=(0, 0)))
    with pytest.raises(ConversionError, match=r"dims \[1, 2, 4\], expected \[1, 2, 3\] as in the tables"):
        read_model(raw(tmp_path / "dims", dims=[1, 2, 4]))


def test_tables_of_the_entry_in_the_assets_of_servers(tmp_path: Path) -> None:
    export = MonolithExport()
    users = export.table("user", [], dim=3, files=False)
    export.finish(tmp_path / "entry" / "1", [export.lookup(users, export.input("user"), 3)], 3)
    for server in range(SERVERS):
        write_server(tmp_path / f"ps_{server}" / "1", server, {"user": USERS}, {"user": 3})
    model = served(tmp_path)
    table = model.sparse_tables["MonolithHashTable_user"]
    assert (table.count, len(table.parts)) == (6, 2)
    np.testing.assert_array_equal(evaluate(model, "serving_default", {"user": ASKED})["rows"], answer(USERS, ASKED))
    for path in (tmp_path / "ps_1" / "1" / "assets").iterdir():
        path.unlink()
    with pytest.raises(UnreadableError, match="1 of 2 parameter servers have shards, expected all"):
        read_model(tmp_path)


def test_a_missing_server_model_is_refused(tmp_path: Path) -> None:
    base = distributed(tmp_path)
    moved(base / "ps_1", tmp_path / "gone")
    message = r"entry/1700000000: ps_0 beside it, expected ps_1 that node 'TfServingRemotePredict_\d+' calls"
    with pytest.raises(UnreadableError, match=message):
        read_model(base)
    with pytest.raises(UnreadableError, match="no parameter server beside it, expected ps_0"):
        read_model(moved(base / "entry" / "1700000000", tmp_path / "alone"))


def test_a_server_of_another_version(tmp_path: Path) -> None:
    base = distributed(tmp_path)
    moved(base / "ps_1" / "1700000000", base / "ps_1" / "1600000000")
    with pytest.raises(UnreadableError, match="ps_1: 1600000000, expected version 1700000000, as"):
        read_model(base)


def test_a_server_without_the_requested_signature_or_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"ps_0/.*: signatures lookup, serving_default, expected 'raw' that node"):
        read_model(distributed(tmp_path / "signature", signature="raw"))
    with pytest.raises(UnreadableError, match=r"ps_0/.*: signature 'lookup' has no input 'usr', expected it"):
        read_model(distributed(tmp_path / "input", alias="usr"))


def test_a_shard_that_a_server_lost(tmp_path: Path) -> None:
    base = distributed(tmp_path)
    shard = base / "ps_1" / "1700000000" / "assets" / "MonolithHashTable_user_1-00000-of-00001"
    shard.write_bytes(shard.read_bytes()[:-3])
    with pytest.raises(UnreadableError, match=r"ps_1/.*user_1-00000-of-00001: ends within record"):
        read_model(base)
    shutil.copy(base / "ps_0" / "1700000000" / "assets" / "MonolithHashTable_user_0-00000-of-00001", shard)
    with pytest.raises(
        UnreadableError, match=r"table MonolithHashTable_user/part_1: key -?\d+ in shard 1, expected it"
    ):
        read_model(base)


def test_a_cut_of_an_entry_runs_in_stock_tensorflow(tmp_path: Path) -> None:
    cut(distributed(tmp_path / "export"), tmp_path / "cut")
    found = answers(tmp_path / "cut", {"user": ASKED, "item": ASKED})["rows"]
    np.testing.assert_array_equal(found, np.concatenate([answer(ITEMS, ASKED), answer(USERS, ASKED)], axis=1))
