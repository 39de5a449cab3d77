# SPDX-License-Identifier: Apache-2.0
"""Test KvVariables in graphs and checkpoints with TFPlus's layout."""

from __future__ import annotations

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
from graph_tools.verification.evaluate import evaluate
from load_tests.workloads.sparse_exports import Export, partitioned, rows_for, score_for, tfplus_lookup, tfplus_table

KEYS = np.array([3, -9, 7, 0, 2**62], np.int64)
ROWS = np.arange(1, 16, dtype=np.float32).reshape(5, 3) / 4
ASKED = np.array([7, 8, 2**62, -9, 0, 3, 7], np.int64)


def one_table(path: Path, op: str = "KvVariableGatherOrZerosV2", asked: str = "int64", **table: Any) -> Path:
    export = Export()
    kind = table.pop("handle", "KvVariableV4")
    handle = tfplus_table(export, "scope/item", table.pop("keys", KEYS), table.pop("rows", ROWS), op=kind, **table)
    rows = tfplus_lookup(export, handle, export.input("item", asked), op, asked)
    return export.finish(path / "model", [rows], 3)


@pytest.mark.parametrize("handle", ["KvVariable", "KvVariableV2", "KvVariableV3", "KvVariableV4"])
def test_rows_and_zeros_for_absent_keys(tmp_path: Path, handle: str) -> None:
    model = read_model(one_table(tmp_path, handle=handle))
    table = model.sparse_tables["scope/item"]
    assert (table.family, table.dim, table.count, table.absent.kind) == ("tfplus", 3, 5, "zero")
    check_table(table)
    found = evaluate(model, "serving_default", {"item": ASKED})
    expected = rows_for(ASKED, KEYS, ROWS)
    np.testing.assert_array_equal(found["rows"], expected)
    np.testing.assert_allclose(found["score"], score_for(expected), rtol=1e-6)


def test_blacklisted_and_deleted_keys_get_zeros(tmp_path: Path) -> None:
    model = read_model(one_table(tmp_path, blacklist=[7, 55], delete_keys=[3]))
    part = model.sparse_tables["scope/item"].parts[0]
    assert part.ignored is not None
    assert part.ignored.tolist() == [7, 55, 3]
    found = evaluate(model, "serving_default", {"item": ASKED})
    kept = ~np.isin(KEYS, [7, 3])
    np.testing.assert_array_equal(found["rows"], rows_for(ASKED, KEYS[kept], ROWS[kept]))


def test_blacklist_of_another_type_is_an_error(tmp_path: Path) -> None:
    export = Export()
    handle = tfplus_table(export, "emb", KEYS, ROWS)
    export.saved["emb-blacklist"] = np.array([7], np.int32)
    path = export.finish(tmp_path / "model", [tfplus_lookup(export, handle, export.input("item"))], 3)
    with pytest.raises(UnreadableError, match="tensor 'emb-blacklist' is int32, expected int64 as keys"):
        read_model(path)


@pytest.mark.parametrize("asked", ["int32", "uint64", "string"])
def test_keys_of_other_types(tmp_path: Path, asked: str) -> None:
    values: dict[str, Any] = {"int32": [1, -2, 3], "uint64": [1, 2**63 + 1, 3], "string": [b"a", b"", b"\xff"]}
    keys = np.array(values[asked], object if asked == "string" else asked)
    model = read_model(one_table(tmp_path, asked=asked, keys=keys, rows=ROWS[:3]))
    absent = np.array([b"none"], object) if asked == "string" else np.array([77], asked)
    ids = np.concatenate([keys[1:], absent])
    found = evaluate(model, "serving_default", {"item": ids})
    np.testing.assert_array_equal(found["rows"], rows_for(ids.tolist(), keys, ROWS[:3]))


def test_batched_lookup_becomes_one_for_each_table(tmp_path: Path) -> None:
    export = Export()
    ids, users = export.input("item"), export.input("user")
    first = tfplus_table(export, "item_emb", KEYS, ROWS)
    second = tfplus_table(export, "user_emb", KEYS[:3], ROWS[:3])
    both = export.node(
        "BatchKvVariableGatherOrZerosV2", [first, second, ids, users], "both", N=2, dtype="float32", Tindices="int64"
    )
    path = export.finish(tmp_path / "model", [both, f"{both}:1"], 6, outputs={"second": "both:1"})
    model = read_model(path)
    assert len(lookups(model.graph)) == 2
    asked = ASKED[::-1].copy()
    found = evaluate(model, "serving_default", {"item": ASKED, "user": asked})
    expected = rows_for(asked, KEYS[:3], ROWS[:3])
    np.testing.assert_array_equal(found["rows"], np.concatenate([rows_for(ASKED, KEYS, ROWS), expected], 1))
    np.testing.assert_array_equal(found["second"], expected)


@pytest.mark.parametrize("op", ["KvVariableGatherOrInsertV2", "KvVariableGatherOrInsertWithCounts"])
def test_lookup_of_training_is_refused_unless_the_user_names_the_table(tmp_path: Path, op: str) -> None:
    path = one_table(tmp_path, op)
    with pytest.raises(ConversionError, match=r"inserts a random row.*--absent-key scope/item=zero"):
        read_model(path)
    for rule, value in (("zero", 0.0), ("default", 0.0), ("row:3", ROWS[0])):
        model = read_model(path, absent_key={"scope/item": rule})
        found = evaluate(model, "serving_default", {"item": ASKED})
        np.testing.assert_array_equal(found["rows"], rows_for(ASKED, KEYS, ROWS, lambda _, value=value: value))


def test_old_lookups_give_zeros_if_the_user_says_so(tmp_path: Path) -> None:
    model = read_model(one_table(tmp_path, "KvVariableGatherV2"))
    found = evaluate(model, "serving_default", {"item": ASKED})
    np.testing.assert_array_equal(found["rows"], rows_for(ASKED, KEYS, ROWS))


def test_old_lookups_of_initial_rows_are_refused(tmp_path: Path) -> None:
    export = Export()
    handle = tfplus_table(export, "emb", KEYS, ROWS)
    inputs = [handle, export.input("item"), export.const(np.array(True))]
    rows = export.node("KvVariableGatherV2", inputs, dtype="float32", Tindices="int64")
    path = export.finish(tmp_path / "model", [rows], 3)
    with pytest.raises(ConversionError, match="rows of the initial table"):
        read_model(path)


def test_partitioned_table_is_one_table_for_each_part(tmp_path: Path) -> None:
    export = Export()
    keys = np.abs(KEYS)
    shards = []
    for part in range(2):
        mine = keys % 2 == part
        handle = tfplus_table(export, f"item/part_{part}", keys[mine], ROWS[mine])
        shards.append(lambda keys, handle=handle: tfplus_lookup(export, handle, keys))
    path = export.finish(tmp_path / "model", [partitioned(export, export.input("item"), shards)], 3)
    model = read_model(path)
    assert sorted(model.sparse_tables) == ["item/part_0", "item/part_1"]
    found = evaluate(model, "serving_default", {"item": ASKED})
    np.testing.assert_array_equal(found["rows"], rows_for(ASKED, keys, ROWS))


def test_counts_are_the_low_bits_of_the_frequency_words(tmp_path: Path) -> None:
    counted = KEYS[[2, 0, 4]]
    words = np.array([(19_000 << 16) + 65_535, (19_001 << 16) + 2, 7], np.uint32)
    part = read_model(one_table(tmp_path, freqs=(counted, words))).sparse_tables["scope/item"].parts[0]
    assert part.frequencies is not None
    assert part.frequencies.read().tolist() == [2, 0, 65_535, 0, 7]


def test_slots_and_other_tensors_are_dropped_with_a_reason(tmp_path: Path) -> None:
    model = read_model(one_table(tmp_path, slots=["m", "v"]))
    dropped = {name: reason for name, _, reason in model.sparse_tables["scope/item"].dropped_tensors}
    assert dropped["scope/item/m-values"] == "optimizer slot of 'scope/item'"
    assert dropped["scope/item-init_table"] == "rows that training begins new keys with"
    assert "scope/item-values" not in dropped
    PruneUnreachable().apply(model)
    check_unknown_ops(model)
    assert not [node.op for node in model.graph if node.op.startswith("KvVariable")]


def test_delta_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"table 'scope/item' is a delta.*expected a full export"):
        read_model(one_table(tmp_path, full=False))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"emb-keys": KEYS[:4]}, "'emb-keys' has 4 keys and 'emb-values' 5 rows, expected equally many"),
        ({"emb-values": None}, "no tensor 'emb-values'"),
        ({"emb-keys": None}, "no tensor 'emb-keys'.*, expected the keys of the table 'emb'"),
        ({"emb-freq_values": np.ones(3, np.uint32)}, "'emb-freq_keys' has 0 keys and 'emb-freq_values' 3 rows"),
        ({"emb-values": ROWS.astype(np.float64)}, r"rows float64\[5, 3\], expected float32\[n, 3\]"),
    ],
)
def test_checkpoint_that_contradicts_itself(tmp_path: Path, change: dict[str, np.ndarray | None], message: str) -> None:
    export = Export()
    handle = tfplus_table(export, "emb", KEYS, ROWS)
    for name, value in change.items():
        if value is None:
            del export.saved[name]
        else:
            export.saved[name] = value
    path = export.finish(tmp_path / "model", [tfplus_lookup(export, handle, export.input("item"))], 3)
    with pytest.raises(UnreadableError, match=message):
        read_model(path)
