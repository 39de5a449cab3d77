# SPDX-License-Identifier: Apache-2.0
"""Test EmbeddingVariables in graphs and checkpoints with DeepRec's layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.readers import read_model
from graph_tools.tables.checks import check_table
from graph_tools.verification.evaluate import evaluate
from load_tests.workloads.sparse_exports import (
    Export,
    deeprec_lookup,
    deeprec_table,
    partitioned,
    rows_for,
    score_for,
)

KEYS = np.array([3, 1000, 7, -2, 123456789012345, 2001], np.int64)
ROWS = np.arange(1, 13, dtype=np.float32).reshape(6, 2) / 8
# In the table, absent, in it again, absent.
ASKED = np.array([7, 8, 123456789012345, 2001, 0, 3, 7], np.int64)
MATRIX = np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32)


def one_table(path: Path, *, lookup: dict[str, Any] | None = None, asked: str = "int64", **table: Any) -> Path:
    export = Export()
    ids = export.input("item", asked)
    handle = deeprec_table(export, "item_emb", table.pop("keys", KEYS), table.pop("rows", ROWS), **table)
    rows = deeprec_lookup(export, handle, ids, asked, **(lookup or {}))
    return export.finish(path / "model", [rows], 2)


def answer(path: Path, asked: np.ndarray = ASKED, **options: Any) -> dict[str, np.ndarray]:
    return evaluate(read_model(path, **options), "serving_default", {"item": asked})


def test_rows_and_zeros_for_absent_keys(tmp_path: Path) -> None:
    path = one_table(tmp_path)
    model = read_model(path)
    table = model.sparse_tables["item_emb"]
    assert (table.family, table.dim, table.count, table.absent.kind) == ("deeprec", 2, 6, "zero")
    check_table(table)
    found = evaluate(model, "serving_default", {"item": ASKED})
    expected = rows_for(ASKED, KEYS, ROWS)
    np.testing.assert_array_equal(found["rows"], expected)
    np.testing.assert_allclose(found["score"], score_for(expected), rtol=1e-6)


def test_absent_key_gets_row_of_its_remainder(tmp_path: Path) -> None:
    path = one_table(tmp_path, default=MATRIX)
    assert read_model(path).sparse_tables["item_emb"].absent.kind == "modulo"
    expected = rows_for(ASKED, KEYS, ROWS, lambda key: MATRIX[key % 4])
    np.testing.assert_array_equal(answer(path)["rows"], expected)


def test_equal_default_rows_become_one(tmp_path: Path) -> None:
    path = one_table(tmp_path, default=np.full((4096, 2), 0.25, np.float32))
    absent = read_model(path).sparse_tables["item_emb"].absent
    assert absent.rows is not None
    assert absent.rows.tolist() == [[0.25, 0.25]]
    assert "item_emb/Initialize" in absent.source
    np.testing.assert_array_equal(answer(path)["rows"], rows_for(ASKED, KEYS, ROWS, lambda _: 0.25))


def test_default_row_count_must_be_as_the_op_says(tmp_path: Path) -> None:
    path = one_table(tmp_path, default=MATRIX, default_value_dim=8)
    with pytest.raises(UnreadableError, match=r"table 'item_emb': initial value of shape \[4, 2\], expected \[8, 2\]"):
        read_model(path)


def test_filter_gives_no_permission_value_to_keys_that_were_not_admitted(tmp_path: Path) -> None:
    filtered = np.array([8], np.int64)
    path = one_table(tmp_path, default=MATRIX, filter_freq=3, default_value_no_permission=-0.5, filtered=filtered)
    model = read_model(path)
    table = model.sparse_tables["item_emb"]
    assert "default_value_no_permission -0.5 (filter_freq 3)" in table.absent.source
    dropped = {name: reason for name, _, reason in table.dropped_tensors}
    assert "not admitted" in dropped["item_emb-keys_filtered"]
    np.testing.assert_array_equal(answer(path)["rows"], rows_for(ASKED, KEYS, ROWS, lambda _: -0.5))


def test_filter_with_zero_for_no_permission(tmp_path: Path) -> None:
    path = one_table(tmp_path, random=True, filter_freq=3)
    assert read_model(path).sparse_tables["item_emb"].absent.kind == "zero"


def test_random_default_that_was_not_saved_is_refused(tmp_path: Path) -> None:
    path = one_table(tmp_path, random=True)
    with pytest.raises(ConversionError, match=r"TruncatedNormal.*--absent-key item_emb=zero or item_emb=row:K"):
        read_model(path)
    with pytest.raises(ConversionError):
        read_model(path, absent_key={"item_emb": "default"})


@pytest.mark.parametrize(("rule", "value"), [("zero", 0.0), ("row:7", ROWS[2])])
def test_absent_value_of_a_random_default_is_for_the_user_to_choose(tmp_path: Path, rule: str, value: Any) -> None:
    path = one_table(tmp_path, random=True)
    found = answer(path, absent_key={"item_*": rule})
    np.testing.assert_array_equal(found["rows"], rows_for(ASKED, KEYS, ROWS, lambda _: value))


def test_default_given_with_the_lookup_is_used_by_position(tmp_path: Path) -> None:
    export = Export()
    ids, given = export.input("item"), export.input("given", "float32", (None, 2))
    handle = deeprec_table(export, "item_emb", KEYS, ROWS, random=True)
    rows = deeprec_lookup(export, handle, ids, default=given)
    path = export.finish(tmp_path / "model", [rows], 2)
    defaults = np.arange(14, dtype=np.float32).reshape(7, 2)
    found = evaluate(read_model(path), "serving_default", {"item": ASKED, "given": defaults})
    expected = rows_for(ASKED, KEYS, ROWS)
    for place in (1, 4):
        expected[place] = defaults[place]
    np.testing.assert_array_equal(found["rows"], expected)
    chosen = evaluate(
        read_model(path, absent_key={"item_emb": "zero"}), "serving_default", {"item": ASKED, "given": defaults}
    )
    np.testing.assert_array_equal(chosen["rows"], rows_for(ASKED, KEYS, ROWS))


def test_lookup_with_counts_reads_the_same_rows(tmp_path: Path) -> None:
    path = one_table(tmp_path, lookup={"counts": True})
    np.testing.assert_array_equal(answer(path)["rows"], rows_for(ASKED, KEYS, ROWS))


def test_keys_of_32_bits(tmp_path: Path) -> None:
    keys = np.array([3, 1000, -7], np.int32)
    path = one_table(tmp_path, keys=keys, rows=ROWS[:3], asked="int32")
    asked = np.array([1000, 4, -7], np.int32)
    np.testing.assert_array_equal(answer(path, asked)["rows"], rows_for(asked, keys, ROWS[:3]))


def test_string_keys(tmp_path: Path) -> None:
    keys = np.array([b"a", b"", "ü".encode()], object)
    path = one_table(tmp_path, keys=keys, rows=ROWS[:3], asked="string")
    asked = np.array([b"", b"b", "ü".encode()], object)
    np.testing.assert_array_equal(answer(path, asked)["rows"], rows_for(asked, keys, ROWS[:3]))


def test_string_keys_have_no_remainder(tmp_path: Path) -> None:
    path = one_table(tmp_path, keys=np.array([b"a", b""], object), rows=ROWS[:2], asked="string", default=MATRIX)
    with pytest.raises(ConversionError, match="string keys and 4 default rows"):
        read_model(path)


@pytest.mark.parametrize("default", [None, MATRIX])
def test_partitioned_table_is_one_table_for_each_part(tmp_path: Path, default: np.ndarray | None) -> None:
    export = Export()
    keys, rows = np.abs(KEYS), ROWS
    ids = export.input("item")
    shards = []
    for part in range(3):
        mine = keys % 1000 % 3 == part
        handle = deeprec_table(
            export, f"item_emb/part_{part}", keys[mine], rows[mine], default=default, partition=(part, 3)
        )
        shards.append(lambda keys, handle=handle: deeprec_lookup(export, handle, keys))
    path = export.finish(tmp_path / "model", [partitioned(export, ids, shards, buckets=1000)], 2)
    model = read_model(path)
    assert sorted(model.sparse_tables) == ["item_emb/part_0", "item_emb/part_1", "item_emb/part_2"]
    assert model.tensor_names["item_emb/part_1"] == ("item_emb/part_1-keys", "item_emb/part_1-values")
    found = evaluate(model, "serving_default", {"item": ASKED})
    expected = rows_for(ASKED, keys, rows, lambda key: 0.0 if default is None else default[key % 4])
    np.testing.assert_array_equal(found["rows"], expected)
    chosen = evaluate(read_model(path, absent_key={"item_emb": "row:7"}), "serving_default", {"item": ASKED})
    np.testing.assert_array_equal(chosen["rows"], rows_for(ASKED, keys, rows, lambda _: ROWS[2]))


def test_slots_are_dropped_with_a_reason(tmp_path: Path) -> None:
    path = one_table(tmp_path, slots=["Adagrad", "Adam_1"])
    table = read_model(path).sparse_tables["item_emb"]
    dropped = {name: (size, reason) for name, size, reason in table.dropped_tensors}
    assert dropped["item_emb/Adagrad-values"] == (ROWS.nbytes, "optimizer slot of 'item_emb'")
    assert "item_emb/Adam_1-keys" in dropped
    assert "eviction" in dropped["item_emb-versions"][1]
    assert "item_emb-keys" not in dropped


def test_slots_that_the_graph_does_not_name_are_found_in_the_checkpoint(tmp_path: Path) -> None:
    export = Export()
    handle = deeprec_table(export, "emb", KEYS, ROWS)
    export.saved |= {"emb/Ftrl-keys": KEYS, "emb/Ftrl-values": ROWS}
    path = export.finish(tmp_path / "model", [deeprec_lookup(export, handle, export.input("item"))], 2)
    names = [name for name, _, _ in read_model(path).sparse_tables["emb"].dropped_tensors]
    assert "emb/Ftrl-keys" in names


def test_table_in_the_scope_of_another_is_no_slot(tmp_path: Path) -> None:
    export = Export()
    ids = export.input("item")
    outer = deeprec_table(export, "emb", KEYS, ROWS)
    inner = deeprec_table(export, "emb/inner", KEYS[:2], ROWS[:2])
    lookups = [deeprec_lookup(export, handle, ids) for handle in (outer, inner)]
    model = read_model(export.finish(tmp_path / "model", lookups, 4))
    assert all(not name.startswith("emb/inner") for name, _, _ in model.sparse_tables["emb"].dropped_tensors)
    assert model.sparse_tables["emb/inner"].count == 2


def test_slot_with_other_keys_is_an_error(tmp_path: Path) -> None:
    export = Export()
    handle = deeprec_table(export, "emb", KEYS, ROWS, slots=["Adagrad"])
    export.saved["emb/Adagrad-keys"] = KEYS + 1
    path = export.finish(tmp_path / "model", [deeprec_lookup(export, handle, export.input("item"))], 2)
    with pytest.raises(UnreadableError, match=r"slot 'emb/Adagrad' has other keys than table 'emb'"):
        read_model(path)


def test_frequencies_are_read(tmp_path: Path) -> None:
    path = one_table(tmp_path, freqs=np.arange(10, 16, dtype=np.int64))
    part = read_model(path).sparse_tables["item_emb"].parts[0]
    assert part.frequencies is not None
    by_key = dict(zip(part.keys.read().tolist(), part.frequencies.read().tolist(), strict=True))
    assert by_key == dict(zip(KEYS.tolist(), range(10, 16), strict=True))


def test_lookups_of_training_are_left_alone(tmp_path: Path) -> None:
    export = Export()
    ids = export.input("item")
    handle = deeprec_table(export, "emb", KEYS, ROWS)
    other = deeprec_table(export, "only_trained", KEYS, ROWS, random=True)
    deeprec_lookup(export, other, ids)
    model = read_model(export.finish(tmp_path / "model", [deeprec_lookup(export, handle, ids)], 2))
    assert list(model.sparse_tables) == ["emb"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"emb-keys": KEYS[:4]}, "tensor 'emb-keys' has 4 keys and 'emb-values' 6 rows, expected equally many"),
        ({"emb-values": None}, "no tensor 'emb-values', expected it beside the table's other tensors"),
        ({"emb-keys": None}, "no tensor 'emb-keys'.*, expected the keys of the table 'emb'"),
        ({"emb-values": np.ones((6, 3), np.float32)}, r"rows float32\[6, 3\], expected float32\[n, 2\]"),
        ({"emb-keys": KEYS.astype(np.int32)}, r"keys int32\[6\], expected int64\[n\]"),
        ({"emb-freqs": np.ones(5, np.int64)}, "5 frequencies for 6 keys"),
        ({"emb-partition_offset": np.full(1001, -1, np.int32)}, "-1 at 0, expected offsets that begin at 0"),
    ],
)
def test_checkpoint_that_contradicts_itself(tmp_path: Path, change: dict[str, np.ndarray | None], message: str) -> None:
    export = Export()
    handle = deeprec_table(export, "emb", KEYS, ROWS)
    for name, value in change.items():
        if value is None:
            del export.saved[name]
        else:
            export.saved[name] = value
    path = export.finish(tmp_path / "model", [deeprec_lookup(export, handle, export.input("item"))], 2)
    with pytest.raises(UnreadableError, match=message):
        read_model(path)


@pytest.mark.parametrize(
    ("keys", "rows", "message"),
    [
        (np.array([5, 6, 5], np.int64), ROWS[:3], "key 5 more than once"),
        (KEYS, np.where(ROWS == 1.0, np.nan, ROWS).astype(np.float32), "nan"),
        (KEYS, np.where(ROWS == 1.0, 1e38, ROWS).astype(np.float32), r"9\.99.*e\+37"),
    ],
)
def test_contents_that_cannot_be_weights_are_found(
    tmp_path: Path, keys: np.ndarray, rows: np.ndarray, message: str
) -> None:
    table = read_model(one_table(tmp_path, keys=keys, rows=rows)).sparse_tables["item_emb"]
    with pytest.raises(UnreadableError, match=message):
        check_table(table)


def test_fused_lookup_is_refused_by_name(tmp_path: Path) -> None:
    export = Export()
    ids = export.input("item")
    handle = deeprec_table(export, "emb", KEYS, ROWS)
    rows = export.node("GroupEmbeddingVarLookup", [handle, ids], "fused", Tkeys="int64", dtype="float32", num_lookups=1)
    path = export.finish(tmp_path / "model", [rows], 2)
    with pytest.raises(ConversionError, match=r"node 'fused': the fused lookup GroupEmbeddingVarLookup.*without fused"):
        read_model(path)


def test_a_missing_initializer_is_named(tmp_path: Path) -> None:
    export = Export()
    handle = deeprec_table(export, "emb", KEYS, ROWS)
    rows = deeprec_lookup(export, handle, export.input("item"))
    setters = {"InitializeKvVariableOp", "KvResourceImportV2"}
    export._restores.clear()
    kept = [node for node in export.graph.node if node.op not in setters]
    del export.graph.node[:]
    export.graph.node.extend(kept)
    path = export.finish(tmp_path / "model", [rows], 2)
    with pytest.raises(ConversionError, match="table 'emb': no InitializeKvVariableOp or KvResourceImportV2 for it"):
        read_model(path)
    found = answer(path, absent_key={"emb": "zero"})
    np.testing.assert_array_equal(found["rows"], rows_for(ASKED, KEYS, ROWS))


@pytest.mark.parametrize("operation", ["add", "mult", "concat"])
def test_hash_embedding_of_two_plain_variables_passes_through(tmp_path: Path, operation: str) -> None:
    export = Export()
    ids = export.input("item")
    quotients, remainders = ROWS, ROWS[::-1].copy()
    six = export.const(np.int64(6))
    parts = []
    for name, op, values in (("Q", "FloorDiv", quotients), ("R", "FloorMod", remainders)):
        place = export.node(op, [ids, six], T="int64")
        table = export.variable(f"emb/multihash_{name}", values)
        axis = export.const(np.int32(0))
        parts.append(export.node("GatherV2", [table, place, axis], Tparams="float32", Tindices="int64", Taxis="int32"))
    if operation == "concat":
        rows = export.concat(parts)
    else:
        rows = export.node({"add": "AddV2", "mult": "Mul"}[operation], parts, T="float32")
    path = export.finish(tmp_path / "model", [rows], 4 if operation == "concat" else 2)
    asked = np.array([0, 35, 13, 6], np.int64)
    q, r = quotients[asked // 6], remainders[asked % 6]
    expected = {"add": q + r, "mult": q * r, "concat": np.concatenate([q, r], 1)}[operation]
    model = read_model(path)
    assert not model.sparse_tables
    np.testing.assert_array_equal(evaluate(model, "serving_default", {"item": asked})["rows"], expected)
